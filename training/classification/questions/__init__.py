"""Visual question answering as classification: an image and a question give one of the usual answers."""
