"""The tokenizer of a pretrained model."""

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import transformers
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as BackendTokenizer

from training.common.errors import RecipeError
from training.models.pretrained.architecture import quiet
from training.models.pretrained.folder import read_json
from training.models.text_input import Tokenizer

_VOCABULARIES: Final = ("tokenizer.json", "vocab.*", "merges.txt", "*.model")
_FILES: Final = (*_VOCABULARIES, "tokenizer*.json")
# Definition of Final_Sigma in chapter 3.13 of the Unicode Standard.
_FINAL_SIGMA: Final = (
    r"[\p{Cased}&&\P{Case_Ignorable}]\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*+\p{Cased})"
)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a pretrained model from its folder.

    Raises:
        RecipeError: The folder has no tokenizer, or one without a padding token.
    """
    return converted(transformers_tokenizer(folder), folder)


def converted(pretrained: Any, folder: Path, *, first: Sequence[normalizers.Normalizer] = ()) -> Tokenizer:
    """A tokenizer of transformers, as read from this folder, without transformers."""
    if isinstance(pretrained, transformers.SiglipTokenizer):
        backend = _siglip_backend(pretrained)
    else:
        backend = _backend(pretrained)
        if knows_lower_case_only(folder):
            backend.normalizer = normalizers.Sequence(
                [*_lower_case(), normalizers.Strip(), *_present(backend.normalizer)]
            )
    if first:
        backend.normalizer = normalizers.Sequence([*first, *_present(backend.normalizer)])
    return Tokenizer(backend, pretrained.pad_token_id)


def _backend(pretrained: Any) -> BackendTokenizer:
    """The tokenizer without transformers; a padding token of one character, as "!" of some CLIPs, is read."""
    content = json.loads(pretrained.backend_tokenizer.to_str())
    for token in content["added_tokens"]:
        token["special"] = token["special"] and len(token["content"]) > 1
    return BackendTokenizer.from_str(json.dumps(content))


def knows_lower_case_only(folder: Path) -> bool:
    """Whether a text tower was trained on lower-case texts alone, as SigLIP's of both generations were.

    The tokenizers of many SigLIP 2 folders are plain ones of Gemma, which keep the case.
    """
    config = folder / "config.json"
    return config.is_file() and read_json(config).get("model_type") == "siglip"


def _lower_case() -> list[normalizers.Normalizer]:
    """Lower case as Python's, where a sigma at the end of a word has a form of its own."""
    return [normalizers.Replace(Regex(_FINAL_SIGMA), "ς"), normalizers.Lowercase()]


def _present(normalizer: normalizers.Normalizer | None) -> list[normalizers.Normalizer]:
    return [] if normalizer is None else [normalizer]


def has_tokenizer(folder: Path, patterns: Sequence[str] = _FILES) -> bool:
    """Whether any file of a tokenizer is in a folder."""
    return any(next(folder.glob(pattern), None) for pattern in patterns)


def transformers_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder as transformers reads it.

    Raises:
        RecipeError: The folder has no tokenizer, or one without a padding token.
    """
    if not has_tokenizer(folder, _VOCABULARIES):
        # transformers would make a tokenizer without words of its settings alone.
        raise RecipeError(f"No usable tokenizer in {folder}: {_mend(folder)}.")
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        # The library of tokenizers raises plain exceptions for files that it cannot read.
        raise RecipeError(f"No usable tokenizer in {folder}: {_mend(folder)}. ({error})") from error
    if not (tokenizer.is_fast or isinstance(tokenizer, transformers.SiglipTokenizer)):
        raise RecipeError(
            f"The tokenizer in {folder} is a {type(tokenizer).__name__}, which needs a tokenizer.json: put "
            "one there."
        )
    if tokenizer.pad_token_id is None:
        raise RecipeError(
            f"The tokenizer in {folder} has no padding token: name one in tokenizer_config.json."
        )
    return tokenizer


def _mend(folder: Path) -> str:
    """Advice on a tokenizer that cannot be read."""
    settings = folder / "tokenizer_config.json"
    named = read_json(settings).get("tokenizer_class") if settings.is_file() else None
    of_siglip = named == "SiglipTokenizer" or (named is None and knows_lower_case_only(folder))
    needed = "spiece.model" if of_siglip else "tokenizer.json"
    if (folder / needed).is_file():
        return f"its {needed} is damaged or of another kind, so fetch it again"
    if of_siglip:
        return "SigLIP's cleans texts in a way that no tokenizer.json tells, so put its spiece.model there"
    return "put a tokenizer.json there"


def _siglip_backend(tokenizer: Any) -> BackendTokenizer:
    """SigLIP's tokenizer, which cleans texts in Python before SentencePiece, as one of `tokenizers`."""
    pieces = tokenizer.sp_model
    count = pieces.get_piece_size()
    vocabulary = [(pieces.id_to_piece(number), pieces.get_score(number)) for number in range(count)]
    backend = BackendTokenizer(models.Unigram(vocabulary, pieces.unk_id()))
    marks = "".join(f"\\{mark}" for mark in string.punctuation)
    backend.normalizer = normalizers.Sequence(
        [
            *(_lower_case() if tokenizer.do_lower_case else []),
            normalizers.Replace(Regex(f"[{marks}]"), ""),
            # Separators of files and records are white space in Python, but not here.
            normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "),
            *_character_map(pieces),
            normalizers.Replace(Regex(" +"), " "),
            normalizers.Strip(),
        ]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    end, end_id = tokenizer.eos_token, tokenizer.eos_token_id
    backend.add_special_tokens([end])
    backend.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, end_id)])
    return backend


def _character_map(pieces: Any) -> list[normalizers.Normalizer]:
    """The replacements of characters that a SentencePiece model was trained with."""
    # The module registers its messages with protobuf when it is imported.
    from transformers.utils import sentencepiece_model_pb2_new

    schema: Any = sentencepiece_model_pb2_new
    model = schema.ModelProto()
    model.ParseFromString(pieces.serialized_model_proto())
    compiled = model.normalizer_spec.precompiled_charsmap
    return [normalizers.Precompiled(compiled)] if compiled else []
