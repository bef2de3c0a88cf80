"""The GPU that FAISS may use, and its free memory."""

import logging

import faiss
import pytest

from index.views.gpu import Gpu


def test_a_cpu_is_none(caplog: pytest.LogCaptureFixture) -> None:
    assert Gpu("cpu").number is None
    assert Gpu("cpu").free() is None
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "count", "number"),
    [("auto", 0, None), ("cuda", 1, 0), ("auto", 2, 0), ("cuda:1", 2, 1), ("cuda:99", 2, None)],
)
def test_it_is_one_that_faiss_finds(
    name: str, count: int, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: count, raising=False)
    assert Gpu(name).number == number


def test_one_that_does_not_answer_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: object) -> None:
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1, raising=False)
    monkeypatch.setattr(faiss, "getFreeMemory", failing, raising=False)
    with caplog.at_level(logging.WARNING):
        assert Gpu("cuda").free() is None
    assert "unspecified launch failure" in caplog.text
