"""Reading of answers whose form is not that of one class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import httpx2

from recoquest_client import answers
from recoquest_client.call import json_of
from recoquest_client.decoding import decode
from recoquest_client.errors import AnswerError, problem_from

_T = TypeVar("_T")


def read_nothing(response: httpx2.Response) -> None:
    """Leave an answer that says no more than its status."""


def read_list(name: str, kind: type[_T]) -> Callable[[httpx2.Response], tuple[_T, ...]]:
    """Return the reader of a list that an answer has under a name."""

    def read(response: httpx2.Response) -> tuple[_T, ...]:
        found = _object(response).get(name)
        if not isinstance(found, list):
            raise AnswerError(f"The answer is not one of recoquest: it has no list {name}.")
        return tuple(decode(kind, one) for one in found)

    return read


def _object(response: httpx2.Response) -> dict[str, Any]:
    found = json_of(response)
    if not isinstance(found, dict):
        raise AnswerError("The answer is not one of recoquest: it is no JSON object.")
    return found


def read_count(response: httpx2.Response) -> int:
    """Read an answer with a count."""
    found = _object(response).get("count")
    if not isinstance(found, int):
        raise AnswerError("The answer is not one of recoquest: it has no count.")
    return found


def read_image(response: httpx2.Response) -> answers.Image:
    """Read an image and its ETag."""
    return replace(decode(answers.Image, json_of(response)), etag=response.headers.get("ETag", ""))


def read_batch(response: httpx2.Response) -> tuple[answers.BatchResult, ...]:
    """Read the results of a batch of searches."""
    return tuple(_batch_results(_object(response).get("results")))


def _batch_results(found: Any) -> Iterator[answers.BatchResult]:
    if not isinstance(found, list):
        raise AnswerError("The answer is not one of recoquest: it has no list results.")
    for one in found:
        page, problem = one.get("page"), one.get("problem")
        yield answers.BatchResult(
            None if page is None else decode(answers.SearchPage, page),
            None if problem is None else problem_from(problem, int(problem.get("status", 0))),
        )
