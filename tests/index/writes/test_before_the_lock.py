"""Findings and words of texts are made before a writer holds the lock, for which others wait."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, full_text
from index.catalogue.words import indexed_text
from index.engine import SearchEngine
from index.ingest import ingest_manifest
from index.writes import images
from index.writes.live import change_image
from tests.index.samples import make_manifest, make_records
from training.clinical.findings.findings import find_findings
from training.common.manifest import Record
from training.models.encoder import Encoder

SAID = "There is a small effusion."


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each look for findings and words was under the lock."""
    locked, computed = [False], list[bool]()
    write = Catalogue.write

    @contextmanager
    def noted(self: Catalogue) -> Iterator[Session]:
        with write(self) as session:
            locked[0] = True
            try:
                yield session
            finally:
                locked[0] = False

    def watched(compute: Callable[[str], object]) -> Callable[[str], object]:
        def watch(text: str) -> object:
            computed.append(locked[0])
            return compute(text)

        return watch

    monkeypatch.setattr(Catalogue, "write", noted)
    monkeypatch.setattr(images, "find_findings", watched(find_findings))
    monkeypatch.setattr(full_text, "indexed_text", watched(indexed_text))
    return computed


def said(record: Record) -> Record:
    return replace(record, texts=(*record.texts, SAID))


def test_findings_and_words_are_found_before_the_lock(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path, computed: list[bool]
) -> None:
    ingest_manifest(engine, "films", encoder, make_manifest(tmp_path / "data", make_records(3)))
    active = engine.active("films")
    image_id = make_records(1)[0].id
    assert change_image(engine.home, active, image_id, said, {}).outcome == "replaced"
    assert len(computed) >= 8
    assert not any(computed)
    (finding,) = engine.image("films", image_id).findings
    assert finding.finding == "pleural effusion"


def test_an_image_that_was_changed_meanwhile_is_looked_at_again(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    ingest_manifest(engine, "films", encoder, make_manifest(tmp_path / "data", make_records(3)))
    active = engine.active("films")
    image_id = make_records(1)[0].id
    seen: list[Record] = []

    def change(record: Record) -> Record:
        if not seen:
            seen.append(record)
            other = replace(record, report="No pneumothorax.")
            change_image(engine.home, active, image_id, lambda _: other, {})
        return said(record)

    change_image(engine.home, active, image_id, change, {})
    image = engine.image("films", image_id)
    assert (image.report, image.texts[-1]) == ("No pneumothorax.", SAID)
    assert [finding.finding for finding in image.findings] == ["pneumothorax", "pleural effusion"]
    assert engine.facets("films").findings != ()
