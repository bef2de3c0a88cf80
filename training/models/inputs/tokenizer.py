"""Turning text into token ids, with a pretrained tokenizer or one learned from the train split."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Encoding, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as BackendTokenizer

from training.errors import BundleError, RecipeError
from training.models.config import TextTowerConfig

_PAD, _START, _END, _UNKNOWN = "<pad>", "<start>", "<end>", "<unknown>"


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

    @property
    def learned(self) -> bool:
        """Whether it was learned from the texts of a train split: its tower was not pretrained on others."""
        return all(self._backend.token_to_id(token) is not None for token in (_PAD, _START, _END))

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


def build_tokenizer(config: TextTowerConfig, texts: Iterable[str]) -> Tokenizer:
    """The pretrained tower's own tokenizer, or one learned from `texts` when the tower is not pretrained.

    Args:
        config: Of the text tower.
        texts: Of the train split and of no other.
    """
    if config.pretrained is not None:
        # The import of transformers takes seconds.
        from training.models.pretrained import local_folder

        return load_tokenizer(local_folder(config.pretrained))
    reads_words = config.architecture in ("gru", "text_cnn")
    if config.vocabulary == "words" or (config.vocabulary == "auto" and reads_words):
        return learn_word_tokenizer(texts, config.vocabulary_size, config.min_word_count)
    return learn_tokenizer(texts, config.vocabulary_size)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a pretrained model from its folder.

    Raises:
        RecipeError: The folder has no tokenizer, or one without a padding token.
    """
    import transformers

    try:
        pretrained = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        backend = pretrained.backend_tokenizer
    except (OSError, ValueError, AttributeError, ImportError) as error:
        raise RecipeError(
            f"No usable tokenizer in {folder}: put a tokenizer.json there. ({error})"
        ) from error
    if pretrained.pad_token_id is None:
        raise RecipeError(
            f"The tokenizer in {folder} has no padding token: name one in tokenizer_config.json."
        )
    return Tokenizer(BackendTokenizer.from_str(backend.to_str()), pretrained.pad_token_id)


def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learn a lower-case byte-pair tokenizer; the same texts give the same tokenizer, byte for byte.

    Bytes, because the library numbers the pieces of a WordPiece vocabulary in random order.

    Args:
        texts: Of the train split and of no other.
        vocabulary_size: Upper bound, special tokens included.

    Raises:
        RecipeError: There is no text to learn from.
    """
    lines = _not_empty(texts)
    backend = BackendTokenizer(models.BPE())
    backend.normalizer = _lower_case()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[_PAD, _START, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    return _enclosed(backend)


def learn_word_tokenizer(texts: Iterable[str], vocabulary_size: int, min_count: int = 1) -> Tokenizer:
    """Learn a lower-case vocabulary of words and punctuation, the most frequent first.

    A word that is not in it becomes the unknown one. The same texts give the same tokenizer, byte for byte.

    Args:
        texts: Of the train split and of no other.
        vocabulary_size: Upper bound, special tokens included.
        min_count: A word that occurs less often is left out.

    Raises:
        RecipeError: There is no text to learn from.
    """
    normalizer, splitter = _lower_case(), pre_tokenizers.Whitespace()
    counts: Counter[str] = Counter()
    for text in _not_empty(texts):
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    kept = sorted(word for word, count in counts.items() if count >= min_count)
    kept.sort(key=lambda word: -counts[word])
    special = [_PAD, _UNKNOWN, _START, _END]
    words = [*special, *kept[: vocabulary_size - len(special)]]
    backend = BackendTokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=_UNKNOWN)
    )
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    backend.add_special_tokens(special)
    return _enclosed(backend)


def _not_empty(texts: Iterable[str]) -> list[str]:
    lines = [text for text in texts if text.strip()]
    if not lines:
        raise RecipeError(
            "No text to learn a tokenizer from: give the train split texts, or use a pretrained tower."
        )
    return lines


def _lower_case() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )


def _enclosed(backend: BackendTokenizer) -> Tokenizer:
    """The tokenizer that puts a start and an end around every text."""
    backend.post_processor = processors.TemplateProcessing(
        single=f"{_START} $A {_END}",
        special_tokens=[(token, backend.token_to_id(token)) for token in (_START, _END)],
    )
    return Tokenizer(backend, backend.get_vocab()[_PAD])
