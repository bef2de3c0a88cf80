"""Callers of one server, in a process of their own, in whose environment its client is installed.

Run `python -m tests.benchmarks.servers.callers PARENT JOB`, where JOB is a file with a `Job`. They ask one
question after the other and tell what was found, or they keep a server busy for some seconds. Requests are
made before the clock starts and answers are decoded after it has stopped, for callers share the machine with
the server.
"""

import json
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FILTERS, Condition, K, Range
from tests.benchmarks.throughput.load import Client
from training.common.host import end_with_parent

Kind = Literal["service", "echo", "engine", "milvus", "pgvector"]
Search = Callable[[Any], Any]
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked, and what its client has to know."""

    kind: Kind
    options: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What callers do.

    Attributes:
        target: Who is asked.
        queries: File with all queries (Q, D).
        conditions: Query i takes condition i modulo their number.
        seconds: How long they ask.
        callers: How many ask at the same time; 0 asks for each query once and tells what was found.
        place: Which of several processes this is, which share the queries.
        processes: How many those are.
    """

    target: Target
    queries: str
    conditions: tuple[Condition, ...]
    seconds: float
    callers: int = 0
    place: int = 0
    processes: int = 1

    def write(self, file: Path) -> None:
        """Keep it for another process."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> "Job":
        """Read what `write` has kept."""
        values = json.loads(file.read_text())
        conditions = tuple(
            Condition(tuple(Range(**part) for part in condition["ranges"]))
            for condition in values.pop("conditions")
        )
        return cls(Target(**values.pop("target")), conditions=conditions, **values)

    @cached_property
    def questions(self) -> list[tuple[Vectors, Condition | None]]:
        """The queries that are this process's to ask, each with its condition."""
        queries = np.load(self.queries)
        places = range(self.place, len(queries), self.processes)
        return [(queries[place], self._condition(place)) for place in places]

    def _condition(self, place: int) -> Condition | None:
        return self.conditions[place % len(self.conditions)] if self.conditions else None


class Asked(Protocol):
    """A server's client."""

    def prepare(self, query: Vectors, condition: Condition | None) -> Any:
        """Return a request that is ready to be sent."""

    def connect(self) -> Search:
        """Connect one caller, and return what sends a request and waits for the answer."""

    def keys(self, answer: Any) -> list[int]:
        """Return what was found.

        Raises:
            RuntimeError: The answer tells of an error, or its hits have no metadata.
        """


def main() -> None:
    """Do what the arguments say, and print what was found and measured as a line of JSON."""
    end_with_parent(int(sys.argv[1]))
    job = Job.read(Path(sys.argv[2]))
    module, name = _CLIENTS[job.target.kind]
    asked: Asked = getattr(import_module(f"tests.benchmarks.servers.{module}"), name)(job.target.options)
    _tell((load if job.callers else ask)(asked, job))


def ask(asked: Asked, job: Job) -> dict[str, Any]:
    """Ask for each query once, as long as there is time, but at least once with each condition."""
    search = asked.connect()
    times: list[float] = []
    keys: list[list[int]] = []
    sizes: list[int] = []
    ended = time.perf_counter() + job.seconds
    for query, condition in job.questions:
        request = asked.prepare(query, condition)
        started = time.perf_counter()
        if started > ended and len(times) > FILTERS:
            break
        answer = search(request)
        times.append(1000 * (time.perf_counter() - started))
        keys.append(asked.keys(answer))
        sizes.append(len(answer) if isinstance(answer, bytes) else 0)
    return {"times": times, "keys": keys, "size": int(statistics.median(sizes))}


def load(asked: Asked, job: Job) -> dict[str, Any]:
    """Let callers ask, each its next question when it has its answer, once this process is told to begin."""
    requests = [asked.prepare(query, condition) for query, condition in job.questions]
    searches = [asked.connect() for _ in range(job.callers)]
    # A search with a filter that was never used before is not what is measured here.
    for request, search in zip(requests[-FILTERS:], cycle(searches), strict=False):
        search(request)
    _tell("ready")
    sys.stdin.readline()
    begun, processor = time.perf_counter(), time.process_time()

    def call(place: int) -> tuple[list[float], Any]:
        search, times, answer = searches[place], [], None
        for request in _until(begun + job.seconds, requests[place :: job.callers]):
            started = time.perf_counter()
            answer = search(request)
            times.append(1000 * (time.perf_counter() - started))
        return times, answer

    with ThreadPoolExecutor(job.callers) as pool:
        called = list(pool.map(call, range(job.callers)))
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    for _, answer in called:
        asked.keys(answer)
    times = [one for own, _ in called for one in own]
    return {"times": times, "seconds": seconds, "processor": processor}


def http_body(query: Vectors, condition: Condition | None) -> bytes:
    """Return the body of a search of the service."""
    asked: dict[str, Any] = {"like": [{"vector": query.tolist()}], "limit": K}
    if condition is not None:
        asked["filter"] = condition.as_filter
    return json.dumps(asked).encode()


class Echo:
    """Whatever takes the service's searches over HTTP: options are `port` and `path`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._address = ("127.0.0.1", options["port"])
        self._head = f"POST {options['path']} HTTP/1.1\r\nHost: 127.0.0.1:{options['port']}\r\n"

    def prepare(self, query: Vectors, condition: Condition | None) -> bytes:
        body = http_body(query, condition)
        head = f"{self._head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def connect(self) -> Search:
        client = Client(socket.create_connection(self._address, _TIMEOUT_S))

        def search(request: bytes) -> bytes:
            client.ask(request)
            while (status := client.read()) is None:
                pass
            if status != 200:
                raise RuntimeError(client.body.decode())
            return client.body

        return search

    def keys(self, answer: bytes) -> list[int]:
        return []


class Service(Echo):
    """The service itself."""

    def keys(self, answer: bytes) -> list[int]:
        hits = json.loads(answer)["hits"]
        if not hits or not all(hit["metadata"] for hit in hits):
            raise RuntimeError("hits of the service have no metadata")
        return [int(hit["id"]) for hit in hits]


class Engine:
    """The engine in this process: options are its `name`, its `files` and `threads`."""

    def __init__(self, options: dict[str, Any]) -> None:
        from tests.benchmarks.search.registry import CONTESTANTS

        self._engine = CONTESTANTS[options["name"]].load()(options["threads"])
        self._engine.open(Path(options["files"]))
        self._engine.finalise()

    def prepare(self, query: Vectors, condition: Condition | None) -> tuple[Vectors, dict[str, Any] | None]:
        return query, None if condition is None else condition.as_filter

    def connect(self) -> Search:
        return lambda request: self._engine.search(request[0], K, 0, request[1])

    def keys(self, answer: list[int]) -> list[int]:
        return answer


def _until(ended: float, requests: list[Any]) -> Iterator[Any]:
    for request in cycle(requests):
        if time.perf_counter() > ended:
            return
        yield request


def _tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


_CLIENTS: Final[dict[Kind, tuple[str, str]]] = {
    "service": ("callers", "Service"),
    "echo": ("callers", "Echo"),
    "engine": ("callers", "Engine"),
    "milvus": ("milvus_peer", "Milvus"),
    "pgvector": ("pgvector_peer", "Pgvector"),
}

if __name__ == "__main__":
    main()
