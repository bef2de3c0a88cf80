"""Images inside of larger files: shards of WebDataset, and data sets of the Hugging Face hub."""

import io
import json
import math
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from index.filters.dates import parse_date
from tests.needed import needed_module
from tests.training.importing.trees import image_bytes, imported, left_out, records_of, refused, write
from training.common.errors import DataError
from training.common.record import Record
from training.importing.embedded import Noted, make_record

pa = needed_module("pyarrow", "pip install pyarrow")
parquet = needed_module("pyarrow.parquet", "pip install pyarrow")


def described(**fields: object) -> Record:
    return make_record(fields, Noted(), id="1", image="1.jpg")


def test_fields_by_name() -> None:
    found = described(
        **{
            "Caption": "A  dog.", "sentences": ["A dog.", "Two dogs.", "nan", None],
            "label": 7, "tags": ["a", "b", "a"], "patient_id": 12, "id": "x", "split": "odd",
            "group": "second", "age": 60, "empty": "", "sizes": [1, 2], "mixed": [1, {"a": 2}],
            "object": {"a": 1}, "nan": math.nan, "infinite": math.inf, "missing": None,
            "gaps": [1.5, math.nan, None, "NULL", True], "unknown": [math.nan, None],
            "hash": 2**64 - 1, "huge": -(10**400),
        }
    )  # fmt: skip
    assert found.texts == ("A dog.", "Two dogs.")
    assert found.labels == ("7", "a", "b")
    assert found.group == "12"
    assert found.metadata == {
        "source_id": "x", "source_split": "odd", "source_group": "second", "age": 60, "sizes": (1, 2),
        "gaps": (1.5, True), "hash": str(2**64 - 1), "huge": str(-(10**400)),
    }  # fmt: skip


def test_reports_and_names_in_other_languages() -> None:
    report = "HISTORY: Long cough, since May.\nFINDINGS: The heart is large.\n"
    found = described(report=report)
    assert (found.report, found.texts) == (report.strip(), ("The heart is large.",))
    plain = described(report="First sentence. Second sentence.")
    assert plain.texts == ("First sentence.", "Second sentence.")
    both = described(report=report, impression="Large heart.", text="A film.")
    assert (both.report, both.texts) == (report.strip(), ("A film.", "Large heart."))
    found = described(Befund="Kein Erguss.", Schlagwörter=["Herz"], Légende="un chien")
    assert (found.report, found.labels) == ("Kein Erguss.", ("Herz",))
    assert found.texts == ("un chien", "Kein Erguss.")


Members = list[tuple[str, bytes | str]]


def shard(path: Path, members: Members, mode: Literal["w", "w:gz"] = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as file:
        for name, content in members:
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    known = {"caption": "A dog.", "url": "http://a/b.jpg", "width": 8, "similarity": 0.3, "exif": "{}"}
    shard(
        folder / "00000.tar",
        [
            ("./000000000.jpg", image_bytes(0, "JPEG")),
            ("./000000000.txt", "A dog."),
            ("./000000000.json", json.dumps({**known, "none": None})),
            ("./000000001.json", json.dumps({"caption": None, "status": "failed_to_download"})),
            ("./000000002.jpg", image_bytes(2)),
            ("./000000002.txt", "A  cat\nsits."),
            ("./000000002.npy", b"\0"),
        ],
    )
    members: Members = [("d/x.left.png", image_bytes(3)), ("d/x.right.PNG", image_bytes(4)), ("d/x.cls", "7")]
    shard(folder / "val" / "a.tar.gz", members, "w:gz")
    return folder


def test_webdataset(shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = imported("webdataset", shards, out)
    found = records_of(out)
    assert list(found) == ["00000-000000000", "00000-000000002", "val-a-d-x-left", "val-a-d-x-right"]
    first = found["00000-000000000"]
    assert first.image == "images/00000/000000000.jpg"
    assert (out / first.image).read_bytes() == image_bytes(0, "JPEG")
    assert (first.texts, dict(first.metadata)) == (("A dog.",), {"url": "http://a/b.jpg", "similarity": 0.3})
    second = found["00000-000000002"]
    # A PNG file under another ending has its own.
    assert (second.image, second.texts) == ("images/00000/000000002.png", ("A cat sits.",))
    left, right = found["val-a-d-x-left"], found["val-a-d-x-right"]
    assert (left.image, left.labels, left.split) == ("images/val/a/d/x-left.png", ("7",), right.split)
    assert left.group == right.group == "val/a/d/x"
    assert report.notes == [
        "1 .npy files of samples are not read.",
        "Values of samples that are not read: exif (1), width (1).",
        "2 of 4 images are in folders that name a split, as train/, the others are not: all splits are "
        "drawn.",
    ]
    assert report.rejections.named() == ["Image 2 of 00000.tar: '000000001' has no image, only json."]
    assert not (shards / "manifest.jsonl").exists()
    # Images that are there are not written again.
    before = {path: path.stat().st_mtime_ns for path in (out / "images").rglob("*.*")}
    cut = out / "images" / "00000" / "000000000.jpg"
    cut.write_bytes(cut.read_bytes()[:-3] + b"???")
    imported("webdataset", shards, out)
    assert cut.read_bytes() == image_bytes(0, "JPEG")
    after = {path: path.stat().st_mtime_ns for path in (out / "images").rglob("*.*")}
    assert {path for path in after if before.get(path) != after[path]} == {cut}
    assert before.keys() == after.keys()


def test_no_member_is_written_outside(tmp_path: Path) -> None:
    content = image_bytes(0)
    members: Members = [
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
    report = imported("webdataset", tmp_path / "in", out)
    assert list(records_of(out)) == ["0-absolute", "0-good"]
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        "in/0.tar",
        *(f"deep/er/out/images/0/{name}.png" for name in ("absolute", "good")),
        "deep/er/out/manifest.jsonl",
    }
    assert report.records + len(report.rejections) + sum(left_out(report).values()) == 10


def test_images_of_every_format_are_written_with_its_ending(tmp_path: Path) -> None:
    kinds = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "AVIF": "avif", "GIF": "gif", "BMP": "bmp"}
    kinds["TIFF"] = "tif"
    # Each under its own ending, and under that of another format.
    own: Members = [(f"own{kind}.{ending}", image_bytes(0, kind)) for kind, ending in kinds.items()]
    shard(tmp_path / "0.tar", [*own, *((f"other{kind}.jpg", image_bytes(1, kind)) for kind in kinds)])
    assert imported("webdataset", tmp_path / "0.tar", tmp_path / "out").records == 2 * len(kinds)
    written = {path.name for path in (tmp_path / "out" / "images" / "0").iterdir()}
    assert written == {f"{name}{kind}.{end}" for kind, end in kinds.items() for name in ("own", "other")}


def test_damaged_and_missing_shards_and_links_are_told(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "images").symlink_to(tmp_path / "empty")
    with pytest.raises(DataError, match="images leads to images elsewhere"):
        imported("webdataset", shards, tmp_path / "linked")
    with pytest.raises(DataError, match=r"There is no shard such as 00000\.tar"):
        imported("webdataset", tmp_path / "empty", tmp_path / "out")
    content = (shards / "00000.tar").read_bytes()
    for damaged in (content[:2000], content.replace(b"./000000000.txt", b"?" * 15)):
        (shards / "00000.tar").write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"The shard .*00000\.tar cannot be read: .* Is its download whol"
        ):
            imported("webdataset", shards, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.jsonl").exists()


def texts_of(folder: Path) -> dict[str, tuple[str, ...]]:
    return {record.image: record.texts for record in records_of(folder).values()}


def test_names_with_dots_keep_their_own_texts(tmp_path: Path) -> None:
    names = ("2023.01.05 photo", "2023.01.06 photo", "v1.0", "v1.1", "a.b/x.1", "plain")
    members: Members = []
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
    members: Members = [
        *(("3.1.txt", "of 3.1"), ("3.2.png", image_bytes(2)), ("3.2.txt", "of 3.2")),
        *(("3.3.png", image_bytes(3)), ("4.png", image_bytes(4)), ("4.1.png", image_bytes(5))),
        ("4.txt", "of 4"),
    ]
    shard(tmp_path / "0.tar", members)
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out")
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
            [("a.png", image_bytes(1)), ("a.json", "{")],
            "its json cannot be read: Expecting property name enclosed in double quotes: line 1 column 2 "
            "(char 1)",
        ),
        (
            [("a.png", image_bytes(1)), ("a.txt", b"\xff")],
            "its txt cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
        (
            [("a.png", image_bytes(1)), ("b.png", image_bytes(2)), ("a.png", image_bytes(3))],
            "another image has the name '0/a.png' already; rename one of them",
        ),
        ([("a.png", image_bytes(1)), ("a.json", r'{"patient_id": "\ud800"}')], None),
    ],
)
def test_broken_members_and_what_would_overwrite_refuse_their_sample(
    tmp_path: Path, members: Members, reason: str | None
) -> None:
    shard(tmp_path / "0.tar", [*members, ("good.png", image_bytes(9)), ("good.txt", "good")])
    report = imported("webdataset", tmp_path / "0.tar", tmp_path / "out")
    reasons = {item.reason for item in report.rejections.items}
    assert reasons == {f"'a': {reason}"} if reason else "surrogate" in reasons.pop()
    assert texts_of(tmp_path / "out")["images/0/good.png"] == ("good",)
    kept = records_of(tmp_path / "out").get("0-a")
    assert kept is None or (tmp_path / "out" / kept.image).read_bytes() == image_bytes(1)


def test_one_picture_with_a_sample_a_caption_is_one_image(tmp_path: Path) -> None:
    members: Members = []
    for number in range(12):
        members += [(f"{number}.png", image_bytes(number // 3)), (f"{number}.txt", f"caption {number}")]
    shard(tmp_path / "in" / "a.tar", members[:14])
    shard(tmp_path / "in" / "b.tar", members[14:])
    report = imported("webdataset", tmp_path / "in", tmp_path / "out")
    assert [one.texts for one in records_of(tmp_path / "out").values()] == [
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


FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "objects": {"feature": {"names": ["ball", "stick"], "_type": "ClassLabel"}, "_type": "Sequence"},
    "caption": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"},
}


def table(rows: list[dict[str, Any]], features: dict[str, Any] | None = None) -> Any:
    made = pa.Table.from_pylist(rows)
    if features is None:
        return made
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "image": {"bytes": image_bytes(number, "JPEG"), "path": f"{number}.jpg"},
            "caption": [f"Caption {number}.", "Another."],
            "label": number % 2,
            "objects": [0, 1, -1],
            "id": number,
            "width": 8,
            "source": "nan" if number else "camera",
            "box": {"x": 1},
        }
        for number in range(start, start + count)
    ]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    for part in range(2):
        name = f"train-{part:05}-of-00002-0a1b2c.parquet"
        parquet.write_table(table(rows(40, 40 * part), FEATURES), folder / "data" / name)
    parquet.write_table(table(rows(2, 80), FEATURES), folder / "data" / "validation-00000-of-00001.parquet")
    write(folder, "README.md", "A data set.")
    return folder


def test_parquet(hub: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = imported("huggingface", hub, out)
    assert (report.records, len(report.rejections)) == (82, 0)
    found = records_of(out)
    first, last = found["train-00000000"], found["train-00000079"]
    assert first.image == "images/train/00000000.jpg"
    assert (out / last.image).read_bytes() == image_bytes(79, "JPEG")
    assert (first.texts, first.labels, first.split) == (("Caption 0.", "Another."), ("cat",), "train")
    known = {"objects": ("ball", "stick"), "source_id": 0, "width": 8, "source": "camera"}
    assert dict(first.metadata) == known
    assert "source" not in last.metadata
    assert (found["validation-00000001"].split, found["validation-00000001"].labels) == ("val", ("dog",))


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    source, out = tmp_path / "saved", tmp_path / "out"
    for split, start in (("train", 0), ("test", 12)):
        files = {"data-00000-of-00001.arrow": rows(12, start), "cache-0123456789.arrow": rows(3)}
        write(source, f"{split}/state.json", '{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        for name, content in files.items():
            made = table(content, FEATURES)
            with (
                pa.OSFile(str(source / split / name), "wb") as file,
                pa.ipc.new_stream(file, made.schema) as stream,
            ):
                stream.write_table(made, max_chunksize=5)
    write(source, "dataset_dict.json", json.dumps({"splits": ["train", "test"]}))
    assert imported("huggingface", source, out).records == 24
    last = records_of(out)["test-00000011"]
    assert (last.split, last.labels) == ("test", ("dog",))
    assert (out / last.image).read_bytes() == image_bytes(23, "JPEG")
    write(source, "train/state.json", json.dumps({"_indices_files": [{"filename": "indices.arrow"}]}))
    with pytest.raises(DataError, match=r"train holds a selection of its rows: .* flatten_indices"):
        imported("huggingface", source, out)


def test_reports_patients_and_columns_of_bytes_and_lists(tmp_path: Path) -> None:
    row = {
        "image": {"bytes": image_bytes(1), "path": None},
        "findings": "The heart is large. No effusion is seen.",
        "impression": "Cardiomegaly seen.", "patient_id": "p1", "split": "test",
    }  # fmt: skip
    parquet.write_table(table([row, {**row, "split": "odd"}]), tmp_path / "0000.parquet")
    report = imported("huggingface", tmp_path / "0000.parquet", tmp_path / "out")
    record = records_of(tmp_path / "out")["rows-00000000"]
    assert record.texts == ("The heart is large.", "No effusion is seen.", "Cardiomegaly seen.")
    assert record.report == (
        "FINDINGS: The heart is large. No effusion is seen.\n\nIMPRESSION: Cardiomegaly seen."
    )
    assert (record.group, record.split) == ("p1", "test")
    unknown = "Rows whose column split is none of train, val and test keep it as metadata: 'odd' (1)."
    assert unknown in report.notes
    (tmp_path / "0000.parquet").unlink()
    pair = [{"bytes": image_bytes(1), "path": None}, {"bytes": image_bytes(2), "path": None}]
    parquet.write_table(table([{"images": pair, "text": "Two."}]), tmp_path / "train.parquet")
    parquet.write_table(table([{"png": image_bytes(3), "text": "One."}]), tmp_path / "test.parquet")
    imported("huggingface", tmp_path, tmp_path / "others")
    assert {name: one.texts for name, one in records_of(tmp_path / "others").items()} == {
        "test-00000000": ("One.",),
        "train-00000000": ("Two.",),
        "train-00000000-1": ("Two.",),
    }


def test_sentences_as_objects(tmp_path: Path) -> None:
    """As in the copies of MS-COCO and Flickr30k on the hub, whose images are declared or not."""
    sentences = [
        {"raw": "A dog.", "tokens": ["a", "dog"], "imgid": 1},
        {"raw": "One dog.", "tokens": [], "imgid": 1},
    ]
    made = table([{"image": image_bytes(1), "sentences": sentences, "extra": {"a": 1}}], {
        "image": {"dtype": "binary", "_type": "Value"},
        "sentences": [{"raw": {"dtype": "string", "_type": "Value"}}],
    })  # fmt: skip
    parquet.write_table(made, tmp_path / "val.parquet")
    report = imported("huggingface", tmp_path, tmp_path / "out")
    (record,) = records_of(tmp_path / "out").values()
    assert (record.texts, record.split) == (("A dog.", "One dog."), "val")
    assert report.notes == [
        "Columns that are neither texts nor numbers are not read: extra.",
        "Splits are those that folders or files are named for: val 1.",
    ]


def test_what_cannot_be_used_of_the_hub_is_named(hub: Path, tmp_path: Path) -> None:
    broken = rows(4)
    broken[0]["image"] = {"bytes": None, "path": "/etc/passwd"}
    broken[1]["image"] = None
    broken[2]["image"] = {"bytes": b"no image", "path": None}
    parquet.write_table(table(broken, FEATURES), hub / "data" / "test-00000-of-00001.parquet")
    report = imported("huggingface", hub, tmp_path / "out")
    assert {item.table for item in report.rejections.items} == {"data/test-00000-of-00001.parquet"}
    assert [(line, reason.split(":")[0]) for line, reason in refused(report)] == [
        (1, "its image is not in the file but in '/etc/passwd'"),
        (2, "it has no image"),
        (3, "The file is not an image that can be read"),
    ]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"There is no \.parquet file in .* save_to_disk\.$"):
        imported("huggingface", empty, tmp_path / "out")
    write(empty, "1.png", image_bytes(1))
    with pytest.raises(DataError, match=r"`recoquest import folder .*empty` reads its images"):
        imported("huggingface", empty, tmp_path / "out")
    parquet.write_table(table([{"text": "Only a text."}]), empty / "0.parquet")
    with pytest.raises(DataError, match="has a column of images, only text"):
        imported("huggingface", empty, tmp_path / "out")
    file = hub / "data" / "train-00000-of-00002-0a1b2c.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"cannot be read: .* Is its download whole"):
        imported("huggingface", hub, tmp_path / "out")


def test_dates_are_texts_that_filters_find(tmp_path: Path) -> None:
    day = datetime(2024, 2, 1, 10, 30)
    made = pa.table({
        "image": [{"bytes": image_bytes(1), "path": None}],
        "taken": pa.array([day], pa.timestamp("ns")),
        "zoned": pa.array([day.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "born": pa.array([day.date()], pa.date32()),
        "died": pa.array([None], pa.date32()),
    })  # fmt: skip
    parquet.write_table(made, tmp_path / "some.parquet")
    report = imported("huggingface", tmp_path, tmp_path / "out")
    (record,) = records_of(tmp_path / "out").values()
    assert set(record.metadata) == {"taken", "zoned", "born"}
    assert not report.notes
    taken, zoned, born = (parse_date(str(record.metadata[name])) for name in ("taken", "zoned", "born"))
    assert taken == zoned == parse_date("2024-02-01T10:30Z")
    assert born == parse_date("2024-02-01")
