"""Server-sent events of a job."""

from __future__ import annotations

import json

from recoquest_client.answers import Job
from recoquest_client.decoding import decode
from recoquest_client.errors import AnswerError, ProblemError, problem_from


class EventReader:
    """Reads a job's events line by line, over several connections; what is known already is left out."""

    def __init__(self) -> None:
        self._data: list[str] = []
        self._event = ""
        self._last: Job | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the job has."""
        return self._last is not None and self._last.has_ended

    def begin(self) -> None:
        """Forget half an event of a connection that broke."""
        self._data, self._event = [], ""

    def read(self, line: str) -> Job | None:
        """Take a line without its end; return the job where it ends an event with news.

        Raises:
            AnswerError: The event is no JSON.
            ProblemError: The service says why it ends the stream before the job, as of a revoked key.
        """
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            return None
        event, data = self._event, "\n".join(self._data)
        self.begin()
        if event not in ("job", "problem") or not data:
            return None
        try:
            document = json.loads(data)
        except ValueError as error:
            raise AnswerError("An event of the job is no JSON.") from error
        if event == "problem":
            raise _problem(document)
        found = decode(Job, document)
        if found == self._last:
            return None
        self._last = found
        return found


def _problem(document: object) -> ProblemError:
    status = document.get("status") if isinstance(document, dict) else None
    if not isinstance(status, int):
        raise AnswerError("A problem in the events of the job has no status.")
    return problem_from(document, status)
