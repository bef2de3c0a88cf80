"""Whole manifests."""

import json
from pathlib import Path
from typing import Any

import pytest

from training.common.errors import DataError
from training.common.manifest import Record, Rejections, read_manifest, write_manifest


def put(folder: Path, *lines: dict[str, Any] | str) -> None:
    (folder / "images").mkdir(exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "manifest.jsonl").write_text("\n".join(texts) + "\n")
    for line in lines:
        if isinstance(line, dict):
            (folder / line["image"]).touch()


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "image": f"images/{name}.jpg", "split": "train"} | more


def test_records_keep_order_lines_and_paths(tmp_path: Path) -> None:
    put(tmp_path, entry("b"), "", entry("a", split="test"), "   ")
    manifest = read_manifest(tmp_path)
    assert [(record.id, record.line) for record in manifest.records] == [("b", 1), ("a", 3)]
    assert manifest.image_path(manifest.records[1]) == tmp_path / "images" / "a.jpg"
    assert [record.id for record in manifest.split("test").records] == ["a"]
    assert manifest.split("val").records == ()
    assert manifest.rejections.summary() == f"All 2 lines of {tmp_path}/manifest.jsonl can be used."


def test_every_problem_is_named_with_its_line(tmp_path: Path) -> None:
    put(
        tmp_path,
        entry("a", group="p1"),
        "{broken",
        entry("a"),
        entry("b", group="p1", split="test"),
        entry("c"),
        entry("d"),
        entry("e", audio="sounds/e.wav"),
        entry("f", audio="sounds"),
        entry("g", audio="images/d.jpg"),
        # Lines that are left out claim neither id nor group.
        entry("c", group="p2", image="images/c.jpg", split="val"),
        entry("h", group="p2", split="test", image="images/d.jpg"),
    )
    (tmp_path / "sounds").mkdir()
    (tmp_path / "images" / "c.jpg").unlink()
    manifest = read_manifest(tmp_path, max_rejected=1.0)
    assert [record.id for record in manifest.records] == ["a", "d", "g", "h"]
    assert [manifest.audio_path(record) for record in manifest.records[1:3]] == [
        None,
        tmp_path / "images" / "d.jpg",
    ]
    assert [(item.line, item.reason) for item in manifest.rejections.items] == [
        (2, "it is not JSON: expecting property name enclosed in double quotes (column 2)"),
        (3, "the id 'a' is on line 1 already"),
        (4, "the group 'p1' is in 'train' since line 1 and cannot also be in 'test'"),
        (5, "there is no image 'images/c.jpg'"),
        (7, "there is no audio file 'sounds/e.wav'"),
        (8, "there is no audio file 'sounds'"),
        (10, "there is no image 'images/c.jpg'"),
    ]


def test_too_many_problems_stop_and_are_named(tmp_path: Path) -> None:
    put(tmp_path, *[entry(f"i{number}") for number in range(18)], "{", "[1]")
    assert len(read_manifest(tmp_path, max_rejected=0.1).records) == 18
    with pytest.raises(DataError) as caught:
        read_manifest(tmp_path, max_rejected=0.05)
    assert str(caught.value) == (
        f"Too much of {tmp_path / 'manifest.jsonl'} cannot be used: "
        "2 of 20 lines up to here, more than the share of 0.05 that may be left out. Mend them or allow a "
        "larger share."
    )
    assert caught.value.__notes__ == [
        "Line 19: it is not JSON: expecting property name enclosed in double quotes (column 2).",
        "Line 20: it is not a JSON object.",
    ]


def test_missing_and_empty_manifests(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"^There is no manifest\.jsonl in .*; give the folder that holds one\.$"
    ):
        read_manifest(tmp_path)
    (tmp_path / "manifest.jsonl").write_text("\n \n")
    with pytest.raises(DataError, match="is empty; it needs one JSON object a line"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.jsonl").unlink()
    (tmp_path / "manifest.jsonl").mkdir()
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_manifest(tmp_path)


def test_written_manifests_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "x y.jpg").touch()
    records = [
        Record("a", "x y.jpg", "val", ("Größe\u2028 here.",), "g", ("L",), "R", {"n": 1, "tags": ("a", "b")}),
        Record("b", "x y.jpg", "val"),
    ]
    assert write_manifest(tmp_path, records) == 2
    assert read_manifest(tmp_path).records == tuple(records)


def test_a_manifest_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_manifest(tmp_path, [Record("old", "a.jpg", "val")])
    before = (tmp_path / "manifest.jsonl").read_bytes()
    with pytest.raises(
        DataError, match=r"^Line 2 of the manifest cannot be written: the id 'a' is on line 1 alr"
    ):
        write_manifest(tmp_path, [Record("a", "a.jpg", "val"), Record("a", "b.jpg", "val")])
    assert (tmp_path / "manifest.jsonl").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_rejections_can_take_up_what_cannot_be_written(tmp_path: Path) -> None:
    rejections = Rejections(total=3, max_share=0.5)
    records = [Record("a", "a.jpg", "val", line=7), Record("a/b", "b.jpg", "val", line=8)]
    assert write_manifest(tmp_path, records, rejections=rejections) == 1
    assert [item.line for item in rejections.items] == [8]
