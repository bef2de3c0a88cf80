"""Batch norm of batches that are encoded in parts."""

import logging

import pytest
from torch import nn

from tests.training.models.tiny import tiny_config, tiny_model
from training.common.errors import RecipeError
from training.trainer.optimisation.batch_norm import check_batch_norm, synchronise, warn_of_batch_norm


def test_only_batch_norm_that_is_trained_is_synchronised() -> None:
    model = tiny_model(tiny_config("resnet", image_settings={"frozen_layers": 1})).train()
    norms = {name: m for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    trained = {name for name, norm in norms.items() if norm.training}
    assert 0 < len(trained) < len(norms)
    names = list(model.state_dict())
    synchronise(model)
    model.train()
    for name in norms:
        changed = model.get_submodule(name)
        assert isinstance(changed, nn.SyncBatchNorm) == (name in trained)
        assert changed.training == (name in trained)
    assert list(model.state_dict()) == names


def test_batch_norm_of_one_item_is_refused() -> None:
    model = tiny_model(tiny_config("resnet")).train()
    check_batch_norm(model, smallest=2)
    check_batch_norm(tiny_model(tiny_config("convnext")).train(), smallest=1)
    with pytest.raises(RecipeError, match=r"two items or more.*train\.chunk_size"):
        check_batch_norm(model, smallest=1)


@pytest.mark.parametrize(
    ("image", "chunks", "shares", "said"),
    [
        ("resnet", True, False, ["each chunk"]),
        ("resnet", False, True, ["each process"]),
        ("resnet", False, False, []),
        ("convnext", True, True, []),
    ],
)
def test_batch_norm_of_less_than_the_batch_is_said_once(
    caplog: pytest.LogCaptureFixture, image: str, chunks: bool, shares: bool, said: list[str]
) -> None:
    model = tiny_model(tiny_config("resnet" if image == "resnet" else "convnext")).train()
    with caplog.at_level(logging.WARNING):
        warn_of_batch_norm(model, chunks=chunks, shares=shares)
    assert len(caplog.messages) == len(said)
    assert all(words in message for words, message in zip(said, caplog.messages, strict=True))
