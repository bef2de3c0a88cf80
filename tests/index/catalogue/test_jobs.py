"""Jobs in the catalogue: their states, and who may change them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from index.catalogue import Catalogue, jobs
from index.catalogue.jobs import Job
from index.errors import CollectionInUseError, JobStateError, UnknownJobError
from tests.index.homes import in_read, in_write
from tests.index.meanwhile import note_calls


def _added(catalogue: Catalogue, kind: str = "tidy") -> Job:
    return in_write(catalogue, jobs.add_job, kind, ["--set", "a=b"], folder="/data")


def _claimed(catalogue: Catalogue, worker: str = "w") -> Job:
    job = _added(catalogue)
    claimed = in_write(catalogue, jobs.claim_job, job.id, worker)
    assert claimed is not None
    return claimed


def _found(catalogue: Catalogue, job: Job) -> Job:
    return in_read(catalogue, jobs.get_job, job.id)


def test_a_job_goes_from_queued_to_done(catalogue: Catalogue) -> None:
    job = _added(catalogue)
    assert (job.state, job.kind, job.arguments, job.folder) == ("queued", "tidy", ["--set", "a=b"], "/data")
    assert (job.started, job.ended, job.has_ended) == (None, None, False)
    claimed = in_write(catalogue, jobs.claim_job, job.id, "w")
    assert claimed is not None
    assert (claimed.state, claimed.worker, claimed.attempts) == ("running", "w", 1)
    heard = in_write(catalogue, jobs.beat, job.id, "w", {"done": 1})
    assert heard is not None
    assert (heard.beats, heard.progress) == (1, {"done": 1})
    with catalogue.write() as session:
        assert jobs.beat(session, job.id, "w", None) is not None
        ended = jobs.end_job(session, job.id, "w", "done", result={"rsum": 3.5})
    assert ended == _found(catalogue, job)
    assert (ended.state, ended.result, ended.error, ended.has_ended) == ("done", {"rsum": 3.5}, None, True)
    assert ended.progress == {"done": 1}
    assert job.created <= (claimed.started or "") <= (ended.ended or "")


def test_the_oldest_job_that_waits_is_next_also_a_released_one(catalogue: Catalogue) -> None:
    numbers = [_added(catalogue).id for _ in range(3)]
    with catalogue.write() as session:
        assert jobs.next_job(session) == numbers[0]
        jobs.claim_job(session, numbers[0], "w")
        assert jobs.next_job(session) == numbers[1]
        released = jobs.release_job(session, numbers[0], "w")
        assert released is not None
        assert (released.state, released.worker, released.lapses) == ("queued", None, 0)
        assert jobs.next_job(session) == numbers[0]
        for number in numbers:
            jobs.cancel_job(session, number)
        assert jobs.next_job(session) is None


def test_of_many_that_claim_a_job_one_gets_it(catalogue: Catalogue) -> None:
    added = [_added(catalogue) for _ in range(5)]

    def claim_all(worker: str) -> list[int]:
        won: list[int] = []
        while True:
            number = in_read(catalogue, jobs.next_job)
            if number is None:
                return won
            with catalogue.write() as session:
                if jobs.claim_job(session, number, worker) is not None:
                    won.append(number)

    names = [f"worker-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        won = dict(zip(names, pool.map(claim_all, names), strict=True))
    assert sorted(number for numbers in won.values() for number in numbers) == [job.id for job in added]
    for name, numbers in won.items():
        with catalogue.read() as session:
            assert {jobs.get_job(session, number).worker for number in numbers} <= {name}


def test_only_who_has_a_job_may_change_it(catalogue: Catalogue) -> None:
    job = _claimed(catalogue, "a")
    with catalogue.write() as session:
        assert jobs.claim_job(session, job.id, "b") is None
        assert jobs.beat(session, job.id, "b", {"done": 9}) is None
        assert jobs.end_job(session, job.id, "b", "failed", error="no") is None
        assert jobs.release_job(session, job.id, "b") is None
    assert _found(catalogue, job) == job


def test_a_worker_that_says_nothing_loses_its_job_and_one_that_does_keeps_it(catalogue: Catalogue) -> None:
    job = _claimed(catalogue, "a")
    with catalogue.write() as session:
        assert jobs.beat(session, job.id, "a", None) is not None
        assert jobs.expire_lease(session, job) is None
    seen = _found(catalogue, job)
    with catalogue.write() as session:
        lapsed = jobs.expire_lease(session, seen)
        assert lapsed is not None
        assert (lapsed.state, lapsed.worker, lapsed.lapses) == ("queued", None, 1)
        assert jobs.beat(session, job.id, "a", None) is None
        again = jobs.claim_job(session, job.id, "b")
        assert jobs.end_job(session, job.id, "a", "done") is None
    assert again is not None
    assert (again.worker, again.attempts) == ("b", 2)


def test_a_job_that_loses_every_worker_fails_in_the_end(catalogue: Catalogue) -> None:
    job = _added(catalogue)
    for number in range(1, 6):
        with catalogue.write() as session:
            claimed = jobs.claim_job(session, job.id, f"w{number}")
            assert claimed is not None
            lapsed = jobs.expire_lease(session, claimed)
        assert lapsed is not None
        assert lapsed.state == ("failed" if number == 5 else "queued")
    assert lapsed is not None
    assert "lost 5 times" in (lapsed.error or "")


def test_cancelling_ends_a_queued_job_at_once_and_tells_the_worker_of_a_running_one(
    catalogue: Catalogue,
) -> None:
    queued, running = _added(catalogue), _claimed(catalogue)
    with catalogue.write() as session:
        assert jobs.cancel_job(session, queued.id).state == "cancelled"
        assert jobs.claim_job(session, queued.id, "w") is None
        requested = jobs.cancel_job(session, running.id)
        assert (requested.state, requested.cancelling) == ("running", True)
        heard = jobs.beat(session, running.id, "w", None)
        assert heard is not None
        assert heard.cancelling
        assert jobs.end_job(session, running.id, "w", "cancelled") is not None
    with catalogue.write() as session, pytest.raises(JobStateError, match="ended already: it is cancelled"):
        jobs.cancel_job(session, running.id)
    with catalogue.write() as session, pytest.raises(UnknownJobError, match="There is no job 999"):
        jobs.cancel_job(session, 999)


def test_a_job_that_was_to_be_cancelled_when_its_worker_was_lost_is(catalogue: Catalogue) -> None:
    job = _claimed(catalogue)
    with catalogue.write() as session:
        requested = jobs.cancel_job(session, job.id)
        lapsed = jobs.expire_lease(session, requested)
    assert lapsed is not None
    assert (lapsed.state, lapsed.has_ended) == ("cancelled", True)


def test_the_latest_job_that_made_a_bundle_is_found(catalogue: Catalogue) -> None:
    made = []
    for bundle in ("a", "b", "a"):
        job = _claimed(catalogue)
        in_write(catalogue, jobs.end_job, job.id, "w", "done", result={"bundle": bundle, "rsum": 1.0})
        made.append(job.id)
    _added(catalogue)
    with catalogue.read() as session:
        results = [jobs.job_that_made(session, bundle) for bundle in ("a", "b", "c")]
    assert [job and job.id for job in results] == [made[2], made[1], None]


def test_a_rename_goes_through_the_jobs_of_the_collection_page_by_page(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_AT_ONCE", 3)
    submitted = [["old", "--a", str(number)] for number in range(7)]
    submitted += [["other", "--data", "old"], ["old-2"], [], ["new"]]
    with catalogue.write() as session:
        numbers = [jobs.add_job(session, "index", arguments).id for arguments in submitted]
        for number in numbers:
            jobs.cancel_job(session, number)
    with catalogue.write() as session, monkeypatch.context() as patched:
        sizes = note_calls(patched, session, "execute", lambda *_, **__: len(session.identity_map))
        jobs.rename_in_jobs(session, "old", "new")
    # Three pages with their writes, and one that is empty; no row is kept as an object.
    assert (len(sizes), max(sizes)) == (7, 0)
    with catalogue.read() as session:
        results = {job.id: job.arguments for job in jobs.list_jobs(session)}
    renamed = [["new", *arguments[1:]] if arguments[:1] == ["old"] else arguments for arguments in submitted]
    assert [results[number] for number in numbers] == renamed


def test_no_job_is_renamed_where_one_waits(catalogue: Catalogue) -> None:
    with catalogue.write() as session:
        ended = jobs.add_job(session, "index", ["old"]).id
        jobs.cancel_job(session, ended)
        jobs.add_job(session, "index", ["old"])
    with pytest.raises(CollectionInUseError, match="is queued"), catalogue.write() as session:
        jobs.rename_in_jobs(session, "old", "new")
    assert in_read(catalogue, jobs.get_job, ended).arguments == ["old"]
