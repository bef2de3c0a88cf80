"""Findings are written with texts and reports, replaced and removed with them."""

from dataclasses import replace

from sqlalchemy import func, select

from index.catalogue.tables import REPORT_POSITION, FindingRow, ImageRow
from index.engine import SearchEngine
from index.writes.deletion import delete_images
from tests.index.samples import begin_generation, put_vectors, unit_vectors
from training.common.manifest import Record

ONE = Record(
    id="one",
    image="one.png",
    split="train",
    texts=("A chest.", "No effusion."),
    report="Small effusion; no mass.",
)
TWO = Record(id="two", image="two.png", split="train", texts=("Two dogs on a beach.",))


def _put(engine: SearchEngine, *records: Record) -> None:
    generation = begin_generation(engine, "c", 2)
    put_vectors(engine, generation, records, unit_vectors(len(records), 2))


def _rows(engine: SearchEngine) -> list[tuple[object, ...]]:
    query = (
        select(
            ImageRow.external_id,
            FindingRow.position,
            FindingRow.start,
            FindingRow.stop,
            FindingRow.finding,
            FindingRow.state,
            FindingRow.image_finding,
        )
        .join(ImageRow, (ImageRow.id == FindingRow.image_id))
        .where(ImageRow.collection_id == FindingRow.collection_id)
        .order_by(FindingRow.image_id, FindingRow.position, FindingRow.start)
    )
    with engine.home.catalogue.read() as session:
        return [tuple(row) for row in session.execute(query)]


def test_texts_and_reports_have_their_findings_and_photographs_none(engine: SearchEngine) -> None:
    _put(engine, ONE, TWO)
    assert _rows(engine) == [
        ("one", REPORT_POSITION, 6, 14, "pleural effusion", "present", "pleural effusion: present"),
        ("one", REPORT_POSITION, 19, 23, "mass", "absent", "mass: absent"),
        ("one", 1, 3, 11, "pleural effusion", "absent", "pleural effusion: present"),
    ]


def test_a_changed_report_has_other_findings(engine: SearchEngine) -> None:
    _put(engine, ONE, TWO)
    _put(engine, replace(ONE, report=None), replace(TWO, texts=("Hydropneumothorax.",)))
    assert _rows(engine) == [
        ("one", 1, 3, 11, "pleural effusion", "absent", "pleural effusion: absent"),
        ("two", 0, 0, 17, "pleural effusion", "present", "pleural effusion: present"),
        ("two", 0, 0, 17, "pneumothorax", "present", "pneumothorax: present"),
    ]


def test_findings_go_with_their_image(engine: SearchEngine) -> None:
    _put(engine, ONE, TWO)
    with engine.home.catalogue.write() as session:
        delete_images(session, "c", ["one"])
    with engine.home.catalogue.read() as session:
        assert session.execute(select(func.count()).select_from(FindingRow)).scalar_one() == 0
