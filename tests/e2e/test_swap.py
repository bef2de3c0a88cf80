"""Models are swapped and rolled back under load: no request fails, and no answer mixes two of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine import open_engine
from app.settings import Settings
from index.catalogue.collections import Generation
from index.engine import SearchEngine
from index.generations.activation import generation_of
from index.generations.reindex import generation_for, reindex, swap
from index.ingest import ingest_manifest
from tests.e2e.load import Load, Reference, check_all, reference_of
from tests.e2e.work import Work, service
from tests.index.samples import make_bundle, make_manifest, make_records
from training.models.encoder import Encoder, load_encoder
from training.models.onnx_export import export_towers

REFRESH_S = 0.3
PRELOAD_S = 1.5


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


@pytest.fixture
def encoders(tmp_path: Path) -> list[Encoder]:
    return [
        load_encoder(make_bundle(tmp_path / name, seed=seed, name=name).folder, "cpu")
        for seed, name in enumerate(("first", "second"))
    ]


@pytest.fixture
def engine(work: Work) -> Iterator[SearchEngine]:
    opened = open_engine(Settings(home=work.folder / "home"))
    yield opened
    opened.close()


def _prepare(work: Work, engine: SearchEngine, encoders: list[Encoder]) -> list[Generation]:
    """Index 40 images with the first model, and with the second beside it."""
    manifest = make_manifest(work.folder / "data", make_records(40))
    ingest_manifest(engine, "c", encoders[0], manifest, show_progress=False)
    second = generation_for(engine.home, "c", encoders[1])
    reindex(engine, second, encoders[1], show_progress=False)
    with engine.home.catalogue.read() as session:
        return [generation_of(session, "c", engine.active("c").generation), second]


def _swap_under_load(
    work: Work, engine: SearchEngine, encoders: list[Encoder], *, swaps: int, threads: int
) -> Load:
    generations = _prepare(work, engine, encoders)
    by_digest = {generation.digest: each for generation, each in zip(generations, encoders, strict=True)}
    with service(work, refresh_s=REFRESH_S, threads=1, log_level="error") as (client, _):
        load = Load(str(client.base_url), threads)
        with load.run(engine, by_digest, pause_s=0.2):
            for number in range(1, swaps + 1):
                place = number % 2
                swap(engine, generations[place], encoders[place], preload_s=PRELOAD_S, show_progress=False)
    for generation, encoder in zip(generations, encoders, strict=True):
        # Both with all that was written, whichever was active then.
        reindex(engine, generation, encoder, show_progress=False)
    references = {
        generation.id: reference_of(engine, generation, encoder)
        for generation, encoder in zip(generations, encoders, strict=True)
    }
    right, wrong = check_all(load, references, load.written)
    assert wrong == []
    assert right.total() == len(load.answers)
    assert set(right) == {generation.id for generation in generations}
    assert load.written
    return load


@pytest.mark.slow
def test_swaps_under_load_fail_no_request_and_mix_no_answer(
    work: Work, engine: SearchEngine, encoders: list[Encoder]
) -> None:
    """By graphs, which load faster; with torch in the slow tests."""
    for encoder in encoders:
        assert encoder.info is not None
        export_towers(encoder, encoder.info.folder)
    load = _swap_under_load(work, engine, encoders, swaps=2, threads=3)
    served = [answer.page["served_by"]["generation"] for answer in load.answers]
    assert min(served.count(number) for number in set(served)) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_swaps_under_more_load(work: Work, engine: SearchEngine, encoders: list[Encoder]) -> None:
    _swap_under_load(work, engine, encoders, swaps=20, threads=6)


@pytest.mark.slow
def test_mixed_answers_would_be_found(work: Work, engine: SearchEngine, encoders: list[Encoder]) -> None:
    first, second = _prepare(work, engine, encoders)
    right, other = reference_of(engine, first, encoders[0]), reference_of(engine, second, encoders[1])
    mixed = Reference(right.digest, right.vectors, other.texts)
    with service(work, refresh_s=REFRESH_S, threads=1, log_level="error") as (client, _):
        load = Load(str(client.base_url), 1)
        with load.run(engine, {first.digest: encoders[0]}, pause_s=60):
            while len(load.answers) < 20:
                load.stop.wait(0.05)
    assert check_all(load, {first.id: right}, load.written)[1] == []
    assert len(check_all(load, {first.id: mixed}, load.written)[1]) == len(load.answers)
