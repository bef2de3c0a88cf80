"""What forked processes share: events, texts, figures, wrong keys, and which is the main one."""

import os
from collections.abc import Callable

import pytest

from app.access.authentication import BruteForceLimiter
from app.edge.metrics import Metrics
from app.edge.sharing import Events, Sharing, Texts


def _elsewhere(sharing: Sharing, work: Callable[[], object]) -> None:
    """Do something in a process that has the second place, and ends."""
    process = os.fork()
    if not process:
        code = 1
        try:
            sharing.index = 1
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def test_each_process_takes_each_event_once_and_the_latest_of_too_many() -> None:
    sharing = Sharing(2)
    events = Events(sharing, "qd", kept=4)
    events.put(1, 0.5)
    _elsewhere(sharing, lambda: events.put(2, 1.5))
    assert list(events.take()) == [(1, 0.5), (2, 1.5)]
    assert list(events.take()) == []

    def more() -> None:
        for number in range(3, 10):
            events.put(number, 0.0)

    _elsewhere(sharing, more)
    assert [number for number, _ in events.take()] == [6, 7, 8, 9]


def test_a_text_is_replaced_whole_and_outlives_its_process() -> None:
    sharing = Sharing(2)
    texts = Texts(sharing, room=10)
    assert texts.read(1) == b""

    def twice() -> None:
        texts.write(b"0123456789")
        texts.write(b"short")

    _elsewhere(sharing, twice)
    assert texts.read(1) == b"short"
    with pytest.raises(ValueError, match="too long"):
        texts.write(b"0123456789a")
    assert texts.read(0) == b""


def test_wrong_keys_of_all_processes_count() -> None:
    sharing = Sharing(2)
    guesses = BruteForceLimiter(lambda _: None, lambda: 1_000.0, sharing)
    _elsewhere(sharing, lambda: [guesses.wait_s(["a"], f"{number}-guess") for number in range(5)])
    assert guesses.wait_s(["a"], "another") == 1
    assert guesses.wait_s(["a"], "0-guess") == 0
    assert guesses.wait_s(["b"], "another") == 0


def test_figures_add_up_and_those_of_a_replaced_process_are_not_lost() -> None:
    sharing = Sharing(2)
    metrics = Metrics(sharing)

    def work() -> None:
        # A process of a service is forked before any has shown its figures.
        metrics._inherited = None
        sharing.serving.own = 1
        for _ in range(2):
            metrics.answered("search", 200, 0.3)
        metrics.connections.set(7)
        metrics.publish()

    def value(name: str) -> float:
        lines = metrics.render().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    _elsewhere(sharing, work)
    count = 'recoquest_requests_total{operation="search",status="200"}'
    assert (value(count), value("recoquest_connections")) == (2, 7)
    sharing.clear(1)
    assert (value(count), value("recoquest_connections")) == (2, 0)
    _elsewhere(sharing, work)
    metrics.answered("search", 200, 0.1)
    metrics.connections.set(3)
    assert (value(count), value("recoquest_connections")) == (5, 10)
    bucket = 'recoquest_request_seconds_bucket{le="0.25",operation="search"}'
    total = 'recoquest_request_seconds_count{operation="search"}'
    assert (value(bucket), value(total)) == (1, 5)
    # The names and labels of one process, in the same order.
    alone = Metrics()
    alone.answered("search", 200, 0.1)
    names = [
        [line.rpartition(" ")[0] for line in figures.render().decode().splitlines() if line[0] != "#"]
        for figures in (metrics, alone)
    ]
    assert names[0] == names[1]


def test_another_leads_once_the_one_that_led_has_ended() -> None:
    sharing = Sharing(2)

    def is_lead() -> None:
        assert sharing.is_main()

    _elsewhere(sharing, is_lead)
    assert sharing.is_main()

    def is_refused() -> None:
        sharing._is_main = False
        assert not sharing.is_main()

    _elsewhere(sharing, is_refused)
