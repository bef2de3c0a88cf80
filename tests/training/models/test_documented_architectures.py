"""docs/pretrained.md names every architecture that a tower may have, and no other."""

import re
from pathlib import Path
from typing import get_args

from training.models.config import AudioArchitecture, ImageArchitecture, TextArchitecture
from training.models.texts.backbones import TEXT_TYPES

PAGE = Path(__file__).parents[3] / "docs" / "pretrained.md"
TABLE = re.compile(r"^\| tower \|.*?\n\n.*?\n\n", re.MULTILINE | re.DOTALL)


def test_the_page_lists_the_architectures_of_towers() -> None:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    rows, rest = found[0].split("\n\n")[:2]
    towers = [line.split("|")[1] for line in rows.splitlines()]
    from_weights = {name for cell in towers for name in re.findall(r"`(\w+)`", cell)}
    from_random = set(re.findall(r"`(\w+)`", rest.split("serves both towers.")[1]))
    known = {*get_args(ImageArchitecture), *get_args(TextArchitecture), *get_args(AudioArchitecture)}
    assert from_weights | from_random == known
    assert from_weights & from_random == set()
    assert set(TEXT_TYPES) == set(get_args(TextArchitecture)) - from_random
