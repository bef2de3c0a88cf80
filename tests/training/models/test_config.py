"""Settings of encoders: what does not fit is refused, and reading them takes no library of models."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training.models.tiny import tiny_config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retrieval": "concat"}, "add branches"),
        ({"branches": {"kind": "mlp", "fork_after": 2}}, "remove fork_after"),
        ({"branches": {}, "blades": 2}, "set blades to 1"),
        ({"branches": {}, "dim": 2}, "set dim to 3"),
        ({"branches": {"fork_after": 0}}, "greater than 0"),
        ({"local_head": {}}, "set local_features to true"),
        ({"share_local_head": True}, "set local_features to true"),
        ({"local_features": True, "share_local_head": True, "local_head": {}}, "remove local_head"),
        ({"local_features": True, "share_local_head": True, "blades": 2}, "local features are no blades"),
        ({"blades": 5}, "less than or equal to 4"),
        ({"blades": 3, "dim": 2}, "set dim to 4 or more, or blades to less"),
        ({"blades": 3, "dim": 3}, "set dim to 4 or more, or blades to less"),
        ({"concepts": 3, "blades": 2}, "concepts make the head of images"),
        ({"concepts": 3, "image_settings": {"head": {"kind": "mlp"}}}, "concepts make the head of images"),
        ({"pair_attention": {}}, "pair_attention compares regions with words"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        tiny_config(**settings)


@pytest.mark.parametrize("module", ["training.models.config", "training.data.augmentation_config"])
def test_settings_are_read_without_libraries_of_models(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    heavy = {"torch", "transformers", "kornia", "peft", "tokenizers", "huggingface_hub", "numpy"}
    assert not heavy & set(done.stdout.split())
