"""Shards of WebDataset."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.training.importing.trees import image_bytes, imported, left_out, records_of
from training.common.errors import DataError


def shard(path: Path, members: list[tuple[str, bytes | str]], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, content in members:
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    known = {
        "caption": "A dog.",
        "url": "http://a/b.jpg",
        "width": 8,
        "similarity": 0.3,
        "exif": "{}",
        "none": None,
    }
    shard(
        folder / "00000.tar",
        [
            ("./000000000.jpg", image_bytes(0, "JPEG")),
            ("./000000000.txt", "A dog."),
            ("./000000000.json", json.dumps(known)),
            ("./000000001.json", json.dumps({"caption": None, "status": "failed_to_download"})),
            ("./000000002.jpg", image_bytes(2)),
            ("./000000002.txt", "A  cat\nsits."),
            ("./000000002.npy", b"\0"),
        ],
    )
    shard(
        folder / "val" / "a.tar.gz",
        [("d/x.left.png", image_bytes(3)), ("d/x.right.PNG", image_bytes(4)), ("d/x.cls", "7")],
        "w:gz",
    )
    return folder


def test_records(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = imported("webdataset", source, out, max_rejected=0.5)
    found = records_of(out)
    assert list(found) == ["00000-000000000", "00000-000000002", "val-a-d-x-left", "val-a-d-x-right"]
    first = found["00000-000000000"]
    assert first.image == "images/00000/000000000.jpg"
    assert (out / first.image).read_bytes() == image_bytes(0, "JPEG")
    assert first.texts == ("A dog.",)
    assert dict(first.metadata) == {"url": "http://a/b.jpg", "similarity": 0.3}
    second = found["00000-000000002"]
    # A PNG file under another ending has its own.
    assert (second.image, second.texts) == ("images/00000/000000002.png", ("A cat sits.",))
    left, right = found["val-a-d-x-left"], found["val-a-d-x-right"]
    assert (left.image, left.labels, left.split) == ("images/val/a/d/x-left.png", ("7",), right.split)
    assert left.group == right.group == "val/a/d/x"
    assert report.notes[-2:] == [
        "Values of samples that are not read: exif (1), width (1).",
        "2 of 4 images are in places that name a split, as train/, the others are not: all splits are drawn.",
    ]
    assert report.rejections.named() == ["Image 2 of 00000.tar: '000000001' has no image, only json."]
    assert not (source / "manifest.jsonl").exists()


def test_images_that_are_there_are_not_written_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    imported("webdataset", source, out, max_rejected=0.5)
    before = {path: path.stat().st_mtime_ns for path in (out / "images").rglob("*.*")}
    cut = out / "images" / "00000" / "000000000.jpg"
    cut.write_bytes(cut.read_bytes()[:-3] + b"???")
    imported("webdataset", source, out, max_rejected=0.5)
    assert cut.read_bytes() == image_bytes(0, "JPEG")
    after = {path: path.stat().st_mtime_ns for path in (out / "images").rglob("*.*")}
    assert {path for path in before if before[path] != after[path]} == {cut}
    assert before.keys() == after.keys()


def test_no_member_is_written_outside(tmp_path: Path) -> None:
    content = image_bytes(0)
    members: list[tuple[str, bytes | str]] = [
        ("../up.png", content), ("a/../../up.png", content), ("/absolute.png", image_bytes(1)),
        ("a\\..\\b.png", content), ("..png", content), ("x/.hidden.png", content), ("good.png", content),
        ("no-image.png", "text"), (f"{'n' * 300}.png", content),
    ]  # fmt: skip
    shard(tmp_path / "in" / "0.tar", members)
    with tarfile.open(tmp_path / "in" / "0.tar", "a") as file:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    out = tmp_path / "deep" / "er" / "out"
    report = imported("webdataset", tmp_path / "in", out, max_rejected=1)
    assert list(records_of(out)) == ["0-absolute", "0-good"]
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        "in/0.tar",
        *(f"deep/er/out/images/0/{name}.png" for name in ("absolute", "good")),
        "deep/er/out/manifest.jsonl",
    }
    assert report.records + len(report.rejections) + sum(left_out(report).values()) == 10


def test_broken_texts_are_named(tmp_path: Path) -> None:
    shard(
        tmp_path / "0.tar",
        [
            *(("a.png", image_bytes(0)), ("a.json", "{"), ("b.png", image_bytes(1)), ("b.txt", b"\xff")),
            ("c.png", image_bytes(2)),
        ],
    )
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out", max_rejected=1)
    assert [item.reason.split(" cannot be read")[0] for item in report.rejections.items] == [
        "'a': its json", "'b': its txt",
    ]  # fmt: skip


def test_a_group_that_is_no_text_refuses_its_image(tmp_path: Path) -> None:
    known = r'{"patient_id": "\ud800"}'
    shard(tmp_path / "0.tar", [("a.png", image_bytes(0)), ("a.json", known), ("b.png", image_bytes(1))])
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out", max_rejected=1)
    assert list(records_of(tmp_path / "out")) == ["0-b"]
    assert ["surrogate" in item.reason for item in report.rejections.items] == [True]


def test_images_of_every_format_are_written_with_its_ending(tmp_path: Path) -> None:
    kinds = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "AVIF": "avif", "GIF": "gif", "BMP": "bmp"}
    kinds["TIFF"] = "tif"
    # Each under its own ending, and under that of another format.
    own = [(f"own{kind}.{ending}", image_bytes(0, kind)) for kind, ending in kinds.items()]
    shard(tmp_path / "0.tar", [*own, *((f"other{kind}.jpg", image_bytes(1, kind)) for kind in kinds)])
    assert imported("webdataset", tmp_path / "0.tar", tmp_path / "out").records == 2 * len(kinds)
    written = {path.name for path in (tmp_path / "out" / "images" / "0").iterdir()}
    assert written == {
        f"{name}{kind}.{ending}" for kind, ending in kinds.items() for name in ("own", "other")
    }


def test_images_of_another_data_set_are_not_written_over(source: Path, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "images").symlink_to(tmp_path / "others")
    with pytest.raises(DataError, match="images leads to images elsewhere"):
        imported("webdataset", source, tmp_path / "out")
    assert not list((tmp_path / "others").iterdir())


def test_what_is_wrong_is_told(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give a second folder"):
        imported("webdataset", source)
    shard_file = source / "00000.tar"
    shard_file.write_bytes(shard_file.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"The shard .*00000\.tar cannot be read: .* Is its download whole"):
        imported("webdataset", source, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"There is no shard such as 00000\.tar"):
        imported("webdataset", tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.jsonl").exists()


def texts_of(folder: Path) -> dict[str, tuple[str, ...]]:
    return {record.image: record.texts for record in records_of(folder).values()}


def test_names_with_dots_keep_their_own_texts(tmp_path: Path) -> None:
    names = ("2023.01.05 photo", "2023.01.06 photo", "v1.0", "v1.1", "a.b/x.1", "plain")
    members: list[tuple[str, bytes | str]] = []
    for number, name in enumerate(names):
        members += [(f"{name}.png", image_bytes(number)), (f"{name}.txt", f"caption of {name}")]
        members += [(f"{name}.json", json.dumps({"number": number}))]
    shard(tmp_path / "0.tar", members)
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out")
    found = list(records_of(tmp_path / "out").values())
    assert [(one.texts, one.metadata["number"]) for one in found] == [
        ((f"caption of {name}",), number) for number, name in enumerate(names)
    ]
    for number, one in enumerate(found):
        assert (tmp_path / "out" / one.image).read_bytes() == image_bytes(number)
    assert not report.rejections


def test_members_of_an_image_that_is_not_there_go_to_no_other(tmp_path: Path) -> None:
    members: list[tuple[str, bytes | str]] = [
        ("3.1.txt", "of 3.1"),
        ("3.2.png", image_bytes(2)),
        ("3.2.txt", "of 3.2"),
        ("3.3.png", image_bytes(3)),
    ]
    shard(
        tmp_path / "0.tar",
        [*members, ("4.png", image_bytes(4)), ("4.1.png", image_bytes(5)), ("4.txt", "of 4")],
    )
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out", max_rejected=1)
    texts = {"3-2": ("of 3.2",), "3-3": (), "4-png": ("of 4",), "4-1": ()}
    assert texts_of(tmp_path / "out") == {f"images/0/{name}.png": own for name, own in texts.items()}
    assert [item.reason for item in report.rejections.items] == ["'3.1' has no image, only txt"]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("a.png", image_bytes(1)), ("a.PNG", image_bytes(2)), ("a.txt", "x")], "it has two members 'png'"),
        ([("a.png", image_bytes(1)), ("a.txt", "x"), ("a.txt", "y")], "it has two members 'txt'"),
        (
            [("a.png", image_bytes(1)), ("a.en.txt", "x"), ("a.de.txt", "y")],
            "it has two members for txt: en.txt and de.txt",
        ),
        (
            [("a.png", image_bytes(1)), ("a.json", '{"txt": "x"}'), ("a.txt", "y")],
            "two of its members have 'txt'",
        ),
        (
            [("a.png", image_bytes(1)), ("a.json", '{"n": 1, "n": 2}')],
            "its json cannot be read: a key is given twice",
        ),
        (
            [("a.png", image_bytes(1)), ("b.png", image_bytes(2)), ("a.png", image_bytes(3))],
            "another image has the name '0/a.png' already; rename one of them",
        ),
    ],
)
def test_what_would_overwrite_refuses_its_sample(
    tmp_path: Path, members: list[tuple[str, bytes | str]], reason: str
) -> None:
    shard(tmp_path / "0.tar", [*members, ("good.png", image_bytes(9)), ("good.txt", "good")])
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out", max_rejected=1)
    assert {item.reason for item in report.rejections.items} == {f"'a': {reason}"}
    assert texts_of(tmp_path / "out")["images/0/good.png"] == ("good",)
    kept = records_of(tmp_path / "out").get("0-a")
    assert kept is None or (tmp_path / "out" / kept.image).read_bytes() == image_bytes(1)


def test_one_picture_with_a_sample_a_caption_is_one_image(tmp_path: Path) -> None:
    members: list[tuple[str, bytes | str]] = []
    for number in range(12):
        members += [(f"{number}.png", image_bytes(number // 3)), (f"{number}.txt", f"caption {number}")]
    shard(tmp_path / "in" / "a.tar", members[:14])
    shard(tmp_path / "in" / "b.tar", members[14:])
    report = imported("webdataset", tmp_path / "in", tmp_path / "out")
    found = list(records_of(tmp_path / "out").values())
    assert [one.texts for one in found] == [
        tuple(f"caption {3 * number + own}" for own in range(3)) for number in range(4)
    ]
    assert len(list((tmp_path / "out" / "images").rglob("*.png"))) == 4
    assert (report.tallies[0].found, report.tallies[0].taken) == (12, 12)


def test_lists_in_quotes_and_values_that_are_not_read_are_said(tmp_path: Path) -> None:
    known = {"caption": "['a dog', 'it\\'s a dog']", "tags": '["x", "y"]', "box": {"a": 1}, "rows": [[1]]}
    shard(tmp_path / "0.tar", [("a.png", image_bytes(1)), ("a.json", json.dumps(known))])
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out")
    (record,) = records_of(tmp_path / "out").values()
    assert (record.texts, record.labels) == (("a dog", "it's a dog"), ("x", "y"))
    assert report.notes == [
        "Values of samples that are not read: box (1), rows (1).",
        "Values that are lists in quotes, of which each item was taken: caption (1), tags (1).",
    ]
