"""docs/configuration.md and the settings agree."""

import re
from pathlib import Path

from app.settings import PREFIX, Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_page_lists_every_setting_with_its_default() -> None:
    rows = dict(
        re.findall(rf"^\| `{PREFIX}(\w+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    expected = {
        name.upper(): "" if field.default in (None, ()) else str(field.default)
        for name, field in Settings.model_fields.items()
    }
    assert rows == expected
