"""Turning text into token ids."""

from collections.abc import Sequence
from typing import Final

from tokenizers import Encoding
from tokenizers import Tokenizer as BackendTokenizer

from training.common.errors import BundleError

# Special tokens of a learned tokenizer.
PAD: Final = "<pad>"
START: Final = "<start>"
END: Final = "<end>"


class Tokenizer:
    """A tokenizer with the ids that towers need; it neither cuts nor pads.

    Attributes:
        pad_id: Fills a batch.
        cls_id: What every text begins with; None when it begins with its first word.
        eos_id: What every text ends with; None when it ends with its last word.
    """

    def __init__(self, backend: BackendTokenizer, pad_id: int) -> None:
        backend.no_truncation()
        backend.no_padding()
        # Whoever writes the name of a special token into a text gets its letters, not the token.
        backend.encode_special_tokens = True
        empty = backend.encode("").ids
        self._backend = backend
        self.pad_id = pad_id
        self.cls_id: int | None = empty[0] if len(empty) > 1 else None
        self.eos_id: int | None = empty[-1] if empty else None

    @property
    def size(self) -> int:
        """Number of ids a tower needs an embedding for."""
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Ids, special-token mask and character offsets of each text, whole and with special tokens."""
        encodings: list[Encoding] = self._backend.encode_batch(list(texts))
        return encodings

    def to_json(self) -> str:
        """Everything that restores this tokenizer; the same tokenizer gives the same text."""
        copy = BackendTokenizer.from_str(self._backend.to_str())
        copy.enable_padding(pad_id=self.pad_id, pad_token=self._backend.id_to_token(self.pad_id))
        return str(copy.to_str(pretty=True))

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Restore what `to_json` wrote.

        Raises:
            BundleError: The text is not a tokenizer, or names no padding token.
        """
        try:
            backend = BackendTokenizer.from_str(text)
        except Exception as error:
            raise BundleError(f"The tokenizer cannot be read ({error}): make the bundle again.") from error
        if backend.padding is None:
            raise BundleError("The tokenizer names no padding token: make the bundle again.")
        return cls(backend, backend.padding["pad_id"])
