"""docs/recipes.md, "What an epoch is": the recipes of this project that draw one text an image are named."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from tests.training.recipes.resolved import settings
from tests.training.recipes.test_documented_rows import expand
from training.recipes.library import shipped

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"


def test_recipes_of_this_project_that_draw_one_text_an_image_are_named_with_the_reason() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## What an epoch is")[1].split("\n## ")[0]
    found = re.search(r"`([^`]+)` draw one text an image", section)
    assert found is not None
    patterns = expand(found[1])
    own = [name for file in shipped().files if not file.group for name in file.recipes]
    drawing = {name for name in own if settings(name)["data.epoch_of"] == "images"}
    assert {name for name in own if any(fnmatchcase(name, pattern) for pattern in patterns)} == drawing
    assert all(any(fnmatchcase(name, pattern) for name in own) for pattern in patterns)
