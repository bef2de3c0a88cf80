"""The key of pseudonyms: drawn once, and private."""

from pathlib import Path

import pytest

from index.errors import HomeError
from index.keys.home_secret import FILE, patient_key


def test_a_home_has_one_key_that_others_cannot_read(tmp_path: Path) -> None:
    key = patient_key(tmp_path)
    assert len(key) == 32
    assert patient_key(tmp_path) == key
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_damaged_key_says_what_a_new_one_changes(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not a key")
    with pytest.raises(HomeError, match=r"patients\.key, is damaged: .* other pseudonyms"):
        patient_key(tmp_path)
