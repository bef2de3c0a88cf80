"""Images that a manifest has under other names keep what belongs to them; those it no longer has may go."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest
from sqlalchemy import select

from index.cases import put_list, read_list, save_case
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.engine import SearchEngine
from index.erasure import PendingErasure, keep_others_away
from index.errors import IncompleteGenerationError, UnknownImageError
from index.feedback import JudgedQuery, judgements, record_judgement
from tests.index.samples import ingest, make_bundle, make_manifest, make_picture, make_records
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, read_manifest
from training.models.encoder import Encoder, load_encoder


def _renamed(manifest: Manifest, folder: Path, names: Mapping[str, str]) -> Manifest:
    """A manifest of the images that are named, with their pictures, under other ids."""
    records = []
    (folder / "images").mkdir(parents=True)
    for record in manifest.records:
        if record.id in names:
            name = names[record.id]
            copyfile(manifest.image_path(record), folder / "images" / f"{name}.png")
            records.append(replace(record, id=name, image=f"images/{name}.png"))
    return make_manifest(folder, sorted(records, key=lambda record: record.id))


def _embeddings(engine: SearchEngine) -> dict[str, bytes]:
    with engine.home.catalogue.read() as session:
        query = select(ImageRow.external_id, EmbeddingRow.vector).join(
            EmbeddingRow, EmbeddingRow.image_id == ImageRow.id
        )
        return {row.external_id: row.vector for row in session.execute(query)}


def _judge(engine: SearchEngine, image: str, query: JudgedQuery, *, relevant: bool = True) -> None:
    with engine.home.catalogue.write() as session:
        record_judgement(session, "c", query, image, relevant, limit=100)


def _judged(engine: SearchEngine) -> set[tuple[str, Sequence[str], bool]]:
    with engine.home.catalogue.read() as session:
        return {(one.image, one.query.images, one.relevant) for one in judgements(session, "c")}


def test_a_renamed_folder_keeps_all_that_belongs_to_its_images(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    before = _embeddings(indexed)
    _judge(indexed, "image-003", JudgedQuery(texts=("a dog",)))
    _judge(indexed, "image-004", JudgedQuery(images=("image-003", "image-009")), relevant=False)
    with indexed.home.catalogue.write() as session:
        put_list(session, "c", "list", "List")
        save_case(session, "c", "list", "image-007", "a note", None)
    names = {record.id: record.id.replace("image", "IMAGE") for record in manifest.records}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names), prune=True)
    assert (dict(report.moved), report.embedded, report.absent, report.added) == (names, 0, (), 0)
    assert report.taken == 20
    assert _embeddings(indexed) == {names[name]: vector for name, vector in before.items()}
    assert _judged(indexed) == {
        ("IMAGE-003", (), True),
        ("IMAGE-004", ("IMAGE-003", "IMAGE-009"), False),
    }
    with indexed.home.catalogue.read() as session:
        _, entries, *_ = read_list(session, "c", "list", limit=10)
    assert [(entry.image, entry.note) for entry in entries] == [("IMAGE-007", "a note")]
    assert indexed.image("c", "IMAGE-003").texts == manifest.records[3].texts
    with pytest.raises(UnknownImageError):
        indexed.image("c", "image-003")


def test_files_that_change_places_keep_their_judgements(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    before = _embeddings(indexed)
    _judge(indexed, "image-001", JudgedQuery(images=("image-002",)))
    _judge(indexed, "image-005", JudgedQuery(images=("image-001",)))
    names = {record.id: record.id for record in manifest.records}
    names |= {"image-001": "image-002", "image-002": "image-001"}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names))
    assert (len(report.moved), report.embedded, report.replaced) == (2, 0, ())
    assert _judged(indexed) == {("image-002", ("image-001",), True), ("image-005", ("image-002",), True)}
    assert _embeddings(indexed)["image-001"] == before["image-002"]


def test_files_that_are_numbered_anew_move_and_the_one_that_is_gone_is_named(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    """The first file is deleted, and each of the others takes the number before its own."""
    before = _embeddings(indexed)
    _judge(indexed, "image-000", JudgedQuery(texts=("gone",)))
    _judge(indexed, "image-001", JudgedQuery(texts=("kept",)))
    names = {f"image-{n:03d}": f"image-{n - 1:03d}" for n in range(1, 20)}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names), prune=True)
    assert (len(report.moved), report.embedded, report.absent, report.pruned) == (19, 0, (), 0)
    assert report.replaced == ("image-000",)
    assert _judged(indexed) == {("image-000", (), True)}
    assert _embeddings(indexed) == {new: before[name] for name, new in names.items()}


def _copies(folder: Path, names: Sequence[str]) -> Manifest:
    """A manifest of equal files with these ids, and of one that stays."""
    records = [Record(name, f"images/{name.rpartition('-')[2]}", "train") for name in names]
    for record in records:
        make_picture(folder / record.image, 7)
    make_picture(folder / "images/own.png", 8)
    return make_manifest(folder, [*records, Record("own", "images/own.png", "train")])


@pytest.mark.parametrize(
    ("former", "new", "moved", "copies", "ambiguous"),
    [
        ("old-a.png", "new-a.png new-copy.png", "old-a.png>new-a.png", "new-copy.png", ""),
        ("old-a.png", "b-a.png c-a.png", "", "", "b-a.png c-a.png"),
        ("old-a.png", "new-b.png", "old-a.png>new-b.png", "", ""),
        (
            "old-a.png old-b.png",
            "new-a.png new-b.png new-c.png",
            "old-a.png>new-a.png old-b.png>new-b.png",
            "new-c.png",
            "",
        ),
        ("old-a.png old-b.png", "new-a.png new-c.png", "old-a.png>new-a.png", "", "new-c.png"),
    ],
)
def test_a_file_that_moved_and_was_copied_has_copies(
    engine: SearchEngine,
    encoder: Encoder,
    tmp_path: Path,
    former: str,
    new: str,
    moved: str,
    copies: str,
    ambiguous: str,
) -> None:
    ingest(engine, encoder, _copies(tmp_path / "a", former.split()))
    report = ingest(engine, encoder, _copies(tmp_path / "b", new.split()))
    assert report.moved == dict(one.split(">") for one in moved.split())
    assert report.copies == tuple(copies.split())
    assert report.ambiguous == tuple(ambiguous.split())
    assert report.added == len(report.copies) + len(report.ambiguous)


def test_equal_files_move_by_their_names_and_others_are_named(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    ingest(engine, encoder, _copies(tmp_path / "a", ["old-one.png", "old-two.png", "old-three.png"]))
    report = ingest(engine, encoder, _copies(tmp_path / "b", ["new-two.png", "new-x.png", "new-y.png"]))
    assert report.moved == {"old-two.png": "new-two.png"}
    assert report.ambiguous == ("new-x.png", "new-y.png")
    assert report.absent == ("old-one.png", "old-three.png")
    assert report.added == 2


def test_what_is_being_erased_gets_no_other_id(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    with keep_others_away(tmp_path / "home"), indexed.home.catalogue.read() as session:
        PendingErasure.begin(tmp_path / "home", session, "c", ["image-004"])
    names = {record.id: f"other-{record.id}" for record in manifest.records}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names))
    assert (len(report.moved), report.absent) == (19, ("image-004",))


@pytest.mark.parametrize(
    ("stay", "limit", "removed"),
    [(21, None, None), (24, None, 10), (24, 9, None), (21, 13, 13), (21, 0.3, None), (21, 0.5, 13)],
)
def test_pruning_stops_above_its_limit_before_anything_is_changed(
    engine: SearchEngine,
    encoder: Encoder,
    tmp_path: Path,
    stay: int,
    limit: float | None,
    removed: int | None,
) -> None:
    records = [
        replace(record, metadata={"folder": "nas" if number > 20 else "disk"})
        for number, record in enumerate(make_records(34))
    ]
    manifest = make_manifest(tmp_path / "data", records)
    ingest(engine, encoder, manifest)
    make_picture(manifest.folder / "images/new.png", 100)
    shorter = make_manifest(
        manifest.folder, [*manifest.records[:stay], Record("new", "images/new.png", "train")]
    )
    if removed is not None:
        assert ingest(engine, encoder, shorter, prune=True, prune_limit=limit).pruned == removed
        assert engine.collection("c").count == 34 - removed + 1
        return
    with pytest.raises(DataError, match=rf"would remove {34 - stay} of the 34 .* \({34 - stay} in 'nas'\)"):
        ingest(engine, encoder, shorter, prune=True, prune_limit=limit)
    assert engine.collection("c").count == 34
    with pytest.raises(UnknownImageError):
        engine.image("c", "new")


def _shorter(manifest: Manifest, count: int) -> Manifest:
    return make_manifest(manifest.folder, manifest.records[:count])


def test_what_the_manifest_no_longer_has_is_counted_and_goes_with_its_files_where_that_is_asked_for(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.catalogue.lookup.AT_ONCE", 2)
    assert ingest(indexed, encoder, manifest).absent == ()
    gone = {name: indexed.image_path("c", name) for name in (f"image-{n:03d}" for n in range(15, 20))}
    shorter = _shorter(manifest, 15)
    report = ingest(indexed, encoder, shorter)
    assert (report.absent, report.pruned, report.unchanged) == (tuple(gone), 0, 15)
    assert all(indexed.image("c", name).id == name for name in gone)
    report = ingest(indexed, encoder, shorter, prune=True)
    assert (report.pruned, report.unchanged, len(report.absent)) == (5, 15, 5)
    for name, path in gone.items():
        with pytest.raises(UnknownImageError):
            indexed.image("c", name)
        assert not path.exists()
    assert indexed.collection("c").count == 15
    again = ingest(indexed, encoder, shorter, prune=True)
    assert (again.pruned, again.absent) == (0, ())


def test_a_stopped_pruning_goes_on(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.catalogue.lookup.AT_ONCE", 2)
    ingest(engine, encoder, manifest)
    shorter = _shorter(manifest, 15)
    with monkeypatch.context() as stopped:

        def stop(seconds: float) -> None:
            raise KeyboardInterrupt

        stopped.setattr("index.ingest.sleep", stop)
        with pytest.raises(KeyboardInterrupt):
            ingest(engine, encoder, shorter, prune=True)
    assert engine.collection("c").count == 18
    assert ingest(engine, encoder, shorter, prune=True).pruned == 3
    assert engine.collection("c").count == 15


def test_images_of_other_splits_and_unusable_lines_stay(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    (manifest.folder / manifest.records[4].image).unlink()
    lines = [json.loads(line) for line in (manifest.folder / "manifest.jsonl").read_text().splitlines()]
    lines[5]["split"] = "no split"
    del lines[6]
    (manifest.folder / "manifest.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    read = read_manifest(manifest.folder, max_rejected=0.2).split("train")
    report = ingest(indexed, encoder, read, prune=True)
    assert (report.absent, report.pruned) == (("image-006",), 1)
    assert (report.found, report.refused_lines) == (19, 2)
    # They stay as they were.
    assert report.outdated == ("image-004", "image-005")
    assert indexed.image("c", "image-004").texts == manifest.records[4].texts
    assert report.found == report.taken + report.refused_lines + len(report.rejections) + report.left_out
    assert indexed.collection("c").count == 19


def test_nothing_is_removed_by_a_manifest_that_cannot_tell(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    other = [replace(record, id=f"other-{record.id}") for record in make_records(4)]
    for number, record in enumerate(other, 100):
        make_picture(tmp_path / "other" / record.image, number)
    with pytest.raises(DataError, match="None of the 20 images of 'c' is in the manifest"):
        ingest(indexed, encoder, make_manifest(tmp_path / "other", other), prune=True)
    with (manifest.folder / "manifest.jsonl").open("a") as file:
        file.write('{"id": "image-0')
    with pytest.raises(DataError, match=r"Lines of the manifest in .* whose id cannot be read: 1\."):
        ingest(indexed, encoder, read_manifest(manifest.folder, max_rejected=0.1), prune=True)
    assert indexed.collection("c").count == 20


def test_another_bundle_takes_over_without_the_images_that_go(
    indexed: SearchEngine, manifest: Manifest, tmp_path: Path
) -> None:
    other = load_encoder(make_bundle(tmp_path / "other", seed=5).folder, "cpu")
    shorter = _shorter(manifest, 12)
    with pytest.raises(IncompleteGenerationError) as refused:
        ingest(indexed, other, shorter)
    assert refused.value.__notes__ == ["8 images of it are not in the manifest: --prune removes them."]
    report = ingest(indexed, other, shorter, prune=True)
    assert report.pruned == 8
    assert report.took_over is not None
    assert indexed.collection("c").count == 12


def test_texts_that_the_encoder_cuts_are_counted(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    long = " ".join(["effusion"] * 200)
    records = [
        replace(record, texts=(long, f"{long} {number}", "short") if number < 3 else ("short",))
        for number, record in enumerate(manifest.records)
    ]
    # The same text of three images is one text.
    assert ingest(engine, encoder, make_manifest(manifest.folder, records)).truncated == 4
    assert ingest(engine, encoder, manifest).truncated == 0
