"""Images of one's own: a folder, with or without a table that says what they show."""

from training.data.readers.folder.own import list_folder

__all__ = ["list_folder"]
