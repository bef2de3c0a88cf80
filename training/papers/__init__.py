"""What only a paper's table needs: objectives, GLUE, visual question answering and language models."""
