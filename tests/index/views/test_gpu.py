"""Which GPU there is, and what is free on it."""

import logging
from functools import cached_property

import pytest
import torch

from index.views.gpu import Gpu


class _Cuda(Gpu):
    @cached_property
    def device(self) -> torch.device | None:
        return torch.device("cuda")


def test_a_cpu_is_none(caplog: pytest.LogCaptureFixture) -> None:
    assert Gpu("cpu").device is None
    assert Gpu("cpu").free() is None
    assert not caplog.records


def test_one_that_is_not_there_is_named_and_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert Gpu("cuda:99").free() is None
    assert "There is no device 'cuda:99' here" in caplog.text


def test_it_is_the_one_that_torch_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert Gpu("auto").device == (torch.device("cuda") if there else None)


def test_what_torch_keeps_for_later_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 300)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 100)
    assert _Cuda("cuda").free() == 1200


def test_one_that_does_not_answer_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: object) -> None:
        raise torch.AcceleratorError("unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "mem_get_info", failing)
    with caplog.at_level(logging.WARNING):
        assert _Cuda("cuda").free() is None
    assert "unspecified launch failure" in caplog.text
