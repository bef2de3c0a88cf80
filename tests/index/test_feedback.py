"""What people say of hits: kept once for each query and image, gone with the image, and what it teaches."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from index import errors, feedback
from index.catalogue.collections import add_collection
from index.catalogue.tables import ImageRow, TextRow
from index.engine import SearchEngine
from index.feedback import FeedbackCounts, JudgedQuery, Judgement, LearningPair, UsableFeedback
from index.writes.live import remove_images
from tests.index.homes import in_read, in_write, remove_collection
from tests.index.samples import ingest, make_manifest, make_picture
from training.common.manifest import Manifest, read_manifest
from training.models.encoder import Encoder

TEXT = JudgedQuery(texts=("two dogs",))


def say(
    engine: SearchEngine, query: JudgedQuery, image: int, relevant: bool | None, to: str = "c", **other: Any
) -> bool:
    name, options = f"image-{image:03}", {"limit": 100, **other}
    return in_write(engine, feedback.record_judgement, to, query, name, relevant, **options)


def said(engine: SearchEngine, collection: str = "c") -> list[Judgement]:
    with engine.home.catalogue.read() as session:
        return list(feedback.judgements(session, collection))


def test_the_last_judgement_of_query_and_image_stands(indexed: SearchEngine) -> None:
    digest = indexed.active("c").digest
    assert not say(indexed, TEXT, 3, True, missed=True)
    assert not say(indexed, TEXT, 4, True)
    assert [one.verdict for one in said(indexed)] == ["supplemented", "accepted"]
    assert say(indexed, TEXT, 3, False)
    assert say(indexed, TEXT, 3, False)
    assert [(one.query, one.image, one.relevant, one.model) for one in said(indexed)] == [
        (TEXT, "image-004", True, digest),
        (TEXT, "image-003", False, digest),
    ]
    with indexed.home.catalogue.read() as session:
        counts = feedback.count_feedback(session, "c")
        first, last = (one.created for one in said(indexed))
        assert feedback.count_feedback(session, "c", since=first) == FeedbackCounts(0, 1, 1, last)
        assert feedback.count_verdicts(session, first, last) == {("c", "accepted"): 1}
        assert feedback.count_verdicts(session, last, last + "1") == {("c", "rejected"): 1}
        assert list(feedback.judged_images(session, "c")) == ["image-003", "image-004"]
    assert counts == FeedbackCounts(1, 1, 1, last)
    assert say(indexed, TEXT, 3, None)
    assert not say(indexed, TEXT, 3, None)
    assert [one.image for one in said(indexed)] == ["image-004"]
    with indexed.home.catalogue.write() as session:
        assert feedback.clear_feedback(session, "c") == 1
        assert feedback.count_feedback(session, "c") == FeedbackCounts(0, 0, 0, None)


def test_a_query_is_known_by_its_parts(indexed: SearchEngine) -> None:
    say(indexed, JudgedQuery(("a", "b"), ("image-001", "image-002"), (), ("image-005",)), 3, True)
    say(indexed, JudgedQuery(("b", "a", "a"), ("image-002", "image-001"), (), ("image-005",)), 3, False)
    for other in (
        JudgedQuery(("a", "b"), ("image-001", "image-002")),
        JudgedQuery(("a", "b", "image-001"), ("image-002",), (), ("image-005",)),
        JudgedQuery(("a", "b"), ("image-001", "image-002"), ("image-005",)),
    ):
        say(indexed, other, 3, True)
    assert [one.relevant for one in said(indexed)] == [False, True, True, True]


def test_judgements_go_with_their_image_its_picture_and_their_collection(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    ingest(indexed, encoder, manifest, "d")
    for image in range(3):
        say(indexed, TEXT, image, True)
        say(indexed, TEXT, image, True, "d")
    remove_images(indexed.home, "c", ["image-000"])
    assert [one.image for one in said(indexed)] == ["image-001", "image-002"]
    records = [replace(record, texts=("another text",)) for record in manifest.records[1:]]
    make_picture(manifest.folder / records[0].image, seed=1000)
    ingest(indexed, encoder, make_manifest(manifest.folder, records))
    assert [one.image for one in said(indexed)] == ["image-002"]
    remove_collection(indexed, "d")
    with pytest.raises(errors.UnknownCollectionError):
        said(indexed, "d")
    assert len(said(indexed)) == 1


def test_what_cannot_be_said_changes_nothing(indexed: SearchEngine) -> None:
    in_write(indexed, add_collection, "empty")
    for query, image, collection, error in (
        (TEXT, 99, "c", errors.UnknownImageError),
        (JudgedQuery(images=("image-099",)), 3, "c", errors.UnknownImageError),
        (JudgedQuery(TEXT.texts, unlike_images=("image-099",)), 3, "c", errors.UnknownImageError),
        (JudgedQuery(unlike_texts=("a cat",)), 3, "c", errors.QueryError),
        (JudgedQuery(texts=("a\x00b",)), 3, "c", errors.QueryError),
        (JudgedQuery(texts=("\ud800",)), 3, "c", errors.QueryError),
        (TEXT, 3, "other\x00", errors.UnknownCollectionError),
        (TEXT, 3, "empty", errors.NoActiveGenerationError),
    ):
        with pytest.raises(error):
            say(indexed, query, image, True, collection)
    for query, missed, field in ((JudgedQuery(), False, "query"), (TEXT, True, "missed")):
        with pytest.raises(errors.QueryError) as failed:
            say(indexed, query, 3, False, missed=missed)
        assert failed.value.field == field
    assert said(indexed) == []


def test_a_collection_has_so_many_judgements_and_no_more(indexed: SearchEngine) -> None:
    for image in range(3):
        say(indexed, TEXT, image, True, limit=3)
    with pytest.raises(errors.FeedbackFullError, match="has 3 judgements"):
        say(indexed, TEXT, 3, True, limit=3)
    say(indexed, TEXT, 2, False, limit=3)
    say(indexed, TEXT, 1, None, limit=3)
    say(indexed, TEXT, 3, True, limit=3)
    assert [(one.image, one.relevant) for one in said(indexed)] == [
        ("image-000", True),
        ("image-002", False),
        ("image-003", True),
    ]


def text(words: str, image: int) -> LearningPair:
    return LearningPair(words, None, f"image-{image:03}")


def example(other: int, image: int) -> LearningPair:
    return LearningPair(None, f"image-{other:03}", f"image-{image:03}")


@pytest.fixture
def taught(indexed: SearchEngine) -> Iterator[SearchEngine]:
    """Judgements of queries of one part and of several."""
    say(indexed, TEXT, 0, True)
    say(indexed, TEXT, 1, False)
    say(indexed, JudgedQuery(images=("image-010",)), 0, True)
    say(indexed, JudgedQuery(images=("image-011",)), 1, False)
    # An example is not its own pair, and one that was removed teaches nothing.
    say(indexed, JudgedQuery(images=("image-012",)), 12, True)
    say(indexed, JudgedQuery(images=("image-013",)), 0, False)
    # Of several parts: all are positives, and no negatives.
    say(indexed, JudgedQuery(("two dogs", "a beach"), ("image-011",)), 2, True)
    say(indexed, JudgedQuery(("two dogs", "a beach")), 3, False)
    say(indexed, JudgedQuery(("two dogs",), unlike_images=("image-014",)), 4, False)
    # A judgement of a part alone takes precedence over one of several, in either order.
    say(indexed, JudgedQuery(("two dogs", "a cat")), 1, True)
    say(indexed, JudgedQuery(("a cat",)), 5, False)
    say(indexed, JudgedQuery(("a cat", "a mat")), 5, True)
    remove_images(indexed.home, "c", ["image-013"])
    yield indexed


def test_what_judgements_teach(taught: SearchEngine) -> None:
    pairs = in_read(taught, feedback.learning_pairs, "c")
    assert set(pairs.positives) == {
        text("two dogs", 0),
        example(10, 0),
        text("two dogs", 2),
        text("a beach", 2),
        example(11, 2),
        text("a cat", 1),
        text("a mat", 5),
    }
    assert set(pairs.negatives) == {text("two dogs", 1), example(11, 1), text("a cat", 5)}
    assert len(pairs.positives) == 7
    assert len(pairs.negatives) == 3


def test_what_a_training_can_use_is_counted(taught: SearchEngine) -> None:
    # An example that is the hit itself leaves one part; another one does not.
    say(taught, JudgedQuery(("two dogs",), ("image-006",)), 6, False)
    say(taught, JudgedQuery(("two dogs",), ("image-006", "image-007")), 6, False)
    say(taught, JudgedQuery(("two dogs",), ("image-007",)), 8, False)
    with taught.home.catalogue.write() as session:
        session.execute(update(ImageRow).values(split="train"))
        assert feedback.count_usable(session, "c") == UsableFeedback(7, 0, 4, 4)
        taught_by_text = {
            pair for pair in feedback.learning_pairs(session, "c").negatives if pair.text is not None
        }
        assert taught_by_text == {text("two dogs", 1), text("a cat", 5), text("two dogs", 6)}
        session.execute(update(ImageRow).where(ImageRow.external_id == "image-000").values(split="val"))
        usable = feedback.count_usable(session, "c")
        assert usable == UsableFeedback(6, 3, 2, 4)
        assert usable.all == len(said(taught))
        newest = said(taught)[-2].created
        assert feedback.count_usable(session, "c", since=newest) == UsableFeedback(several_parts=1)


def test_held_out_images_without_texts_are_searched_for_by_what_they_were_relevant_to(
    taught: SearchEngine, tmp_path: Path
) -> None:
    with taught.home.catalogue.write() as session:
        session.execute(update(ImageRow).values(split="train"))
        held_out = ImageRow.external_id.in_(["image-000", "image-001", "image-003", "image-004"])
        session.execute(update(ImageRow).where(held_out).values(split="val"))
        bare = select(ImageRow.id).where(ImageRow.external_id.in_(["image-000", "image-003"]))
        session.execute(update(ImageRow).where(ImageRow.external_id == "image-003").values(labels=[]))
        session.execute(delete(TextRow).where(TextRow.image_id.in_(bare)))
    taught.image_path("c", "image-019").unlink()
    report = feedback.export_collection(taught.home, "c", tmp_path / "exported")
    records = {record.id: record for record in read_manifest(tmp_path / "exported").records}
    assert records["image-000"].texts == ("two dogs",)
    assert "a cat" not in records["image-001"].texts
    assert records["image-000"].not_texts == records["image-001"].not_texts == ()
    assert records["image-002"].texts == ("text 2.0", "text 2.1", "a beach", "two dogs")
    # Every other draw is a text that was searched for.
    assert records["image-005"].texts == ("text 5.0", "text 5.1", "a mat", "a mat")
    assert records["image-005"].not_texts == ("a cat",)
    assert report == feedback.ExportReport(
        18, 1, liked=3, disliked=0, alone=1, judged=UsableFeedback(3, 8, 1, 0)
    )
    # Nothing can be asked that finds the third.
    splits = [records[f"image-{number:03}"].split for number in (0, 1, 3, 4)]
    assert splits == ["val", "val", "test", "val"]


@pytest.mark.parametrize(("labelled", "split"), [(10, "test"), (11, "val")])
def test_images_for_validation_that_choose_no_epoch_are_measured_as_test(
    taught: SearchEngine, tmp_path: Path, labelled: int, split: str
) -> None:
    """All have one text, by which every model finds them, and few of them a label."""
    with taught.home.catalogue.write() as session:
        session.execute(delete(TextRow))
        session.execute(update(ImageRow).values(split="val", labels=[]))
        rows = session.scalars(select(ImageRow).order_by(ImageRow.id).limit(labelled)).all()
        for row in rows:
            row.labels = ["dog"]
        session.flush()
    feedback.export_collection(taught.home, "c", tmp_path / "exported", feedback=False)
    records = read_manifest(tmp_path / "exported").records
    assert {record.split for record in records if record.labels} == {split}


def test_pairs_that_do_not_go_together_are_those_that_training_draws(
    taught: SearchEngine, tmp_path: Path
) -> None:
    """Image 7 has no text; no image fits the horse."""
    say(taught, TEXT, 7, False)
    say(taught, JudgedQuery(("a horse",)), 1, False)
    with taught.home.catalogue.write() as session:
        session.execute(update(ImageRow).values(split="train"))
        session.execute(delete(TextRow))
    result = feedback.export_collection(taught.home, "c", tmp_path / "exported")
    assert (result.liked, result.disliked, result.alone) == (5, 2, 2)
    result = feedback.export_collection(taught.home, "c", tmp_path / "labelled", label_sentences=True)
    assert (result.disliked, result.alone) == (3, 1)
