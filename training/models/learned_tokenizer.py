"""The tokenizer of a text tower: pretrained, or learned from the train split."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as BackendTokenizer

from training.common.errors import RecipeError
from training.models.config import TextTowerConfig
from training.models.text_input import END, PAD, START, Tokenizer

_UNKNOWN = "<unknown>"


def build_tokenizer(config: TextTowerConfig, texts: Iterable[str]) -> Tokenizer:
    """The pretrained tower's own tokenizer, or one learned from the texts of the train split."""
    if config.pretrained is not None:
        # Importing transformers takes seconds.
        from training.models.pretrained.folder import local_folder
        from training.models.pretrained.tokens import load_tokenizer

        return load_tokenizer(local_folder(config.pretrained))
    reads_words = config.architecture in ("gru", "text_cnn")
    if config.vocabulary == "words" or (config.vocabulary == "auto" and reads_words):
        return learn_word_tokenizer(texts, config.vocabulary_size, config.min_word_count)
    return learn_tokenizer(texts, config.vocabulary_size)


def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learn a lower-case byte-pair tokenizer of at most `vocabulary_size` tokens, special ones included.

    It is deterministic; the library's WordPiece numbers pieces in random order.

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
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    return _enclosed(backend)


def learn_word_tokenizer(texts: Iterable[str], vocabulary_size: int, min_count: int = 1) -> Tokenizer:
    """Learn a lower-case vocabulary of the at most `vocabulary_size` most frequent words and marks.

    Other words, and those that occur less than `min_count` times, become the unknown word. Deterministic.

    Raises:
        RecipeError: There is no text to learn from.
    """
    normalizer, splitter = _lower_case(), pre_tokenizers.Whitespace()
    counts: Counter[str] = Counter()
    for text in _not_empty(texts):
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    kept = sorted(word for word, count in counts.items() if count >= min_count)
    kept.sort(key=lambda word: -counts[word])
    special = [PAD, _UNKNOWN, START, END]
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
        single=f"{START} $A {END}",
        special_tokens=[(token, backend.token_to_id(token)) for token in (START, END)],
    )
    return Tokenizer(backend, backend.get_vocab()[PAD])
