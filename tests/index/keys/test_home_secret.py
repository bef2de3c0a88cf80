"""The secrets in a home folder: of the audit trail's keyed hashes, and of pseudonyms."""

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from index.audit.chain import KEY_FILE, home_key
from index.errors import HomeError
from index.keys.home_secret import FILE, patient_key

SECRETS = [
    (home_key, KEY_FILE, "audit.key, is damaged: .* other hashes"),
    (patient_key, FILE, "patients.key, is damaged: .* other pseudonyms"),
]


@pytest.mark.parametrize(("draw", "name", "lost"), SECRETS)
def test_all_who_draw_at_once_get_the_same_and_a_damaged_one_is_not_replaced(
    tmp_path: Path, draw: Callable[[Path], bytes], name: str, lost: str
) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(draw, [tmp_path] * 16))
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [name]
    for damaged in ("abc", "ab"):
        (tmp_path / name).write_text(damaged)
        with pytest.raises(HomeError, match=lost):
            draw(tmp_path)
        assert (tmp_path / name).read_text() == damaged
