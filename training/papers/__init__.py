"""What only a paper's table needs: GLUE, visual question answering and language models."""
