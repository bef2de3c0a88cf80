"""NIH ChestX-ray14."""

import shutil
from pathlib import Path

import pytest

from tests.training.importing.trees import imported, left_out, records_of, touch, write
from training.common.errors import DataError

# The header as published: two names in brackets have a comma, and a comma ends it.
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],\n"
)
ROWS = [
    "00000001_000.png,Cardiomegaly|Emphysema,000,1,058Y,M,PA,2682,2749,0.143,0.143,\n",
    "00000001_001.png,No Finding,1,1,58,M,AP,2894,2729,0.143,0.143,\n",
    "00000002_000.png,Hernia,0,2,006M,F,PA,2500,2048,0.168,0.168,\n",
    "00000003_000.png,Pleural_Thickening,0,3,414,F,PA,2500,2048,0.168,0.168,\n",
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "nih"
    write(folder, "Data_Entry_2017.csv", HEADER + "".join(ROWS))
    write(folder, "train_val_list.txt", "00000001_000.png\n00000001_001.png\n00000003_000.png\n")
    write(folder, "test_list.txt", "00000002_000.png\n")
    touch(folder, "images_001/images/00000001_000.png", "images_001/images/00000001_001.png")
    touch(folder, "images_002/images/00000002_000.png", "images_012/images/00000003_000.png")
    return folder


def test_records(source: Path) -> None:
    report = imported("nih-cxr14", source)
    assert (report.records, len(report.rejections)) == (4, 0)
    found = records_of(source)
    first = found["00000001_000"]
    assert first.image == "images_001/images/00000001_000.png"
    assert (first.labels, first.group, first.texts) == (("Cardiomegaly", "Emphysema"), "1", ())
    assert dict(first.metadata) == {"view": "PA", "sex": "M", "age": 58, "follow_up": 0}
    assert first.split == found["00000001_001"].split
    assert first.split in ("train", "val")
    assert found["00000001_001"].labels == ("No Finding",)
    assert (found["00000002_000"].split, found["00000002_000"].metadata["age"]) == ("test", 0.5)
    assert found["00000003_000"].metadata["age"] == 414


def test_the_newer_table_without_lists(source: Path) -> None:
    (source / "Data_Entry_2017.csv").unlink()
    newer = HEADER.replace("Gender", "Sex") + "".join(ROWS)
    write(source, "Data_Entry_2017_v2020.csv", newer)
    (source / "train_val_list.txt").unlink()
    with pytest.raises(DataError, match=r"There is no train_val_list\.txt in"):
        imported("nih-cxr14", source)
    (source / "test_list.txt").unlink()
    assert imported("nih-cxr14", source).records == 4
    assert records_of(source)["00000002_000"].metadata["sex"] == "F"


def test_a_sample_that_holds_everything_twice(source: Path) -> None:
    (source / "Data_Entry_2017.csv").rename(source / "sample_labels.csv")
    for name in ("train_val_list.txt", "test_list.txt"):
        (source / name).unlink()
    (source / "sample" / "images").mkdir(parents=True)
    shutil.copy(source / "images_001" / "images" / "00000001_000.png", source / "sample" / "images")
    report = imported("nih-cxr14", source)
    assert (report.records, left_out(report)) == (4, {"images without a row that can be used": 1})
    assert records_of(source)["00000001_000"].image == "images_001/images/00000001_000.png"


def test_an_image_on_both_lists_ends_the_import(source: Path) -> None:
    listed = (source / "test_list.txt").read_text(encoding="utf-8")
    with (source / "train_val_list.txt").open("a", encoding="utf-8") as file:
        file.write(listed.splitlines()[0] + "\n")
    with pytest.raises(
        DataError, match=r"is in train_val_list\.txt and in test_list\.txt; remove it from one"
    ):
        imported("nih-cxr14", source)


def test_what_cannot_be_used_is_named(source: Path) -> None:
    more = ["00000004_000.png,Mass,0,4,50,F,PA,1,1,1,1,\n", "00000005_000.png,Mass,0,5,50,F,PA,1,1,1,1,\n"]
    write(source, "Data_Entry_2017.csv", HEADER + "".join(ROWS + more))
    touch(source, "images_012/images/00000004_000.png", "images_012/images/00000009_000.png")
    write(source, "images_011/images/00000003_000.png", "another")
    report = imported("nih-cxr14", source, max_rejected=1)
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (
            5,
            "there are 2 images '00000003_000.png': images_011/images/00000003_000.png, "
            "images_012/images/00000003_000.png",
        ),
        (6, "'00000004_000.png' is neither in train_val_list.txt nor in test_list.txt"),
        (7, "there is no image '00000005_000.png'"),
    ]


def test_another_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no Data_Entry_2017\.csv or Data_Entry_2017_v2020\.csv in"):
        imported("nih-cxr14", tmp_path)
    with pytest.raises(DataError, match=r"There is no .*nowhere"):
        imported("nih-cxr14", tmp_path / "nowhere")
