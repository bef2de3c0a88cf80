"""Images of one's own: a folder, with or without a table that says what they show."""

from training.data.readers.folder.own import WITHOUT_TEXT_FILES, list_folder

__all__ = ["WITHOUT_TEXT_FILES", "list_folder"]
