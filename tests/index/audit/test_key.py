"""The secret of the keyed hashes in the home folder."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from index.audit.chain import KEY_FILE as FILE
from index.audit.chain import home_key
from index.errors import HomeError


def test_all_who_draw_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(home_key, [tmp_path] * 16))
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_damaged_key_is_not_replaced(tmp_path: Path) -> None:
    home_key(tmp_path)
    (tmp_path / FILE).write_text("abc")
    with pytest.raises(HomeError, match="is damaged"):
        home_key(tmp_path)
    assert (tmp_path / FILE).read_text() == "abc"
