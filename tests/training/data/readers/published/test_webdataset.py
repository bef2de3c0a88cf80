"""Shards of WebDataset."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.training.data.readers.trees import image_bytes, imported, left_out, records_of
from training.errors import DataError


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
    left = found["val-a-d-x-left"]
    assert (left.image, left.labels, left.split) == ("images/val/a/d/x-left.png", ("7",), "val")
    assert left.group == found["val-a-d-x-right"].group == "val/a/d/x"
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
