"""Texts that every database can hold."""


def storable_text(text: str) -> bool:
    """Tell whether every database can hold the text: no null characters, no half surrogate pairs."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
