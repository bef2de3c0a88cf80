"""Checks an image by what the compose files start from it; docker/check.sh builds the image and runs this."""
