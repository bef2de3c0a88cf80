"""The queue that wakes workers, in a file and in a real Redis."""

import json
import logging
import socket
from pathlib import Path

import pytest
from redis import Redis

from app.doctor.jobs import examine_queue
from app.jobs.queue import JobQueue, QueueError, give_job
from app.settings import Settings, SettingsError, load_settings
from index.catalogue.jobs import get_job
from tests.jobs import Jobs


def test_what_is_put_is_taken_once_in_order_by_any_process(jobs: Jobs) -> None:
    taken: list[int] = []
    worker = JobQueue(jobs.settings, taken.append)
    for number in (3, 1, 2):
        jobs.queue.put(number)
    assert not worker.is_empty()
    while (task := worker._huey.dequeue()) is not None:
        worker._huey.execute(task)
    assert taken == [3, 1, 2]
    assert worker.is_empty()
    worker.close()


def test_messages_are_json_and_no_code_in_them_is_run(redis_url: str, tmp_path: Path) -> None:
    queue = JobQueue(Settings(home=tmp_path, queue_url=redis_url))
    queue.put(7)
    with Redis.from_url(redis_url) as client:
        (key,) = client.keys("*")
        (message,) = client.lrange(key, 0, -1)
        assert [7] in json.loads(message)
        client.delete(key)
        client.lpush(key, b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    with pytest.raises(ValueError, match="Expecting value"):
        queue._huey.dequeue()
    queue.close()


def test_a_job_is_given_though_the_queue_cannot_be_reached(
    jobs: Jobs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = JobQueue(Settings(home=tmp_path / "home", queue_url=f"unix://{tmp_path}/no-redis"))
    with pytest.raises(QueueError, match="cannot be reached"):
        away.put(1)
    with pytest.raises(QueueError, match="cannot be reached"):
        away.is_empty()
    with caplog.at_level(logging.WARNING):
        job = give_job(jobs.catalogue, away, "tidy", [])
    with jobs.catalogue.read() as session:
        assert get_job(session, job.id).state == "queued"


def test_a_redis_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.queue._ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Settings(home=tmp_path, queue_url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        queue = JobQueue(settings)
        with pytest.raises(QueueError, match=r"cannot be reached: it gave no answer in time\."):
            queue.is_empty()
        found = examine_queue(settings)
        connection = queue._huey.storage.pool.make_connection()
        queue.close()
    # What drops packets cannot be had without a network of its own; connecting has the same limit.
    assert (connection.socket_connect_timeout, connection.socket_timeout) == (0.3, 0.3)
    assert (found.state, "no answer in time: start that Redis" in found.found) == ("wrong", True)


def test_only_the_address_of_a_redis_is_taken_and_its_password_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RECOQUEST_QUEUE_URL", "amqp://host")
    with pytest.raises(SettingsError, match="address of a Redis server"):
        load_settings()
    printed = Settings(queue_url="redis://me:secret@host:6379/0").printable()
    assert printed["queue_url"] == "redis://me:***@host:6379/0"


def test_a_file_that_is_no_queue_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite3").write_text("no database" * 100)
    queue = JobQueue(Settings(home=tmp_path))
    with pytest.raises(QueueError, match=r"queue\.sqlite3 cannot be used"):
        queue.is_empty()
    with pytest.raises(QueueError, match=r"queue\.sqlite3 cannot be used"):
        queue.consumer(1)
