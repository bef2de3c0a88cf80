"""Folders of images, with and without a table."""

from collections import Counter
from pathlib import Path

import pytest

from tests.image_files import write_photo
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.importing.run import import_data_set


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for name in ("a.jpg", "beach/b.PNG", "beach/c.webp", "notes.txt", ".cache/d.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_photo(folder / name)
    return folder


def table_of(folder: Path, text: str) -> Path:
    table = folder / "table.csv"
    table.write_text(text)
    return table


def test_all_images_are_found_and_nothing_else(photos: Path) -> None:
    assert import_data_set("folder", photos).records == 3
    records = read_manifest(photos).records
    assert [(record.id, record.image) for record in records] == [
        ("a.jpg", "a.jpg"),
        ("beach-b.PNG", "beach/b.PNG"),
        ("beach-c.webp", "beach/c.webp"),
    ]
    assert [dict(record.metadata) for record in records] == [{}, {"folder": "beach"}, {"folder": "beach"}]
    assert all(record.texts == () for record in records)


def test_a_second_import_elsewhere_gives_the_same_records(photos: Path, tmp_path: Path) -> None:
    import_data_set("folder", photos)
    import_data_set("folder", photos, tmp_path / "out")
    again = read_manifest(tmp_path / "out").records
    assert [(record.id, record.split) for record in again] == [
        (record.id, record.split) for record in read_manifest(photos).records
    ]
    assert again[1].image == "images/beach/b.PNG"


def test_a_table_says_what_images_show(photos: Path) -> None:
    table = table_of(
        photos,
        "image,id,text,labels,split,group,year,place,film\n"
        'a.jpg,first,"Two  dogs, running",dog; grass,test,g1,2019,,007\n'
        "beach/b.PNG,,A wave,,train,,2020.5,Rimini,12\n"
        "a.jpg,,A meadow,,,,,7,\n",
    )
    assert import_data_set("folder", photos, table=table).records == 2
    first, second = read_manifest(photos).records
    assert (first.id, second.id) == ("first", "beach-b.PNG")
    assert (first.texts, first.labels) == (("Two dogs, running", "A meadow"), ("dog", "grass"))
    assert (first.split, first.group) == ("test", "g1")
    assert dict(first.metadata) == {"year": 2019, "place": "7", "film": "007"}
    assert dict(second.metadata) == {"folder": "beach", "year": 2020.5, "place": "Rimini", "film": "12"}


def test_whole_numbers_that_a_double_does_not_tell_apart_stay_texts(photos: Path) -> None:
    long, short = "900719925474099", "90071992547409"
    table = table_of(photos, f"image,study,series\na.jpg,{long}2,{short}2\nbeach/b.PNG,{long}3,{short}3\n")
    import_data_set("folder", photos, table=table)
    first, second = read_manifest(photos).records
    assert (first.metadata["study"], second.metadata["study"]) == (f"{long}2", f"{long}3")
    assert (first.metadata["series"], second.metadata["series"]) == (int(f"{short}2"), int(f"{short}3"))


@pytest.mark.slow
def test_images_without_a_split_are_drawn_by_group(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(1000)]
    for name in names:
        write_photo(tmp_path / name)
    lines = "".join(f"{name},{number // 2}\n" for number, name in enumerate(names))
    import_data_set("folder", tmp_path, table=table_of(tmp_path, f"image,group\n{lines}"))
    records = read_manifest(tmp_path).records
    assert all(first.split == second.split for first, second in zip(records[::2], records[1::2], strict=True))
    counts = Counter(record.split for record in records)
    assert counts["train"] > 700
    assert 50 < counts["val"] < 150
    assert 50 < counts["test"] < 150


def test_what_is_wrong_in_a_table_is_named_with_its_line(photos: Path) -> None:
    table = table_of(photos, "image,split\na.jpg,train\nbeach/b.PNG,other\nlost.jpg,train\n")
    report = import_data_set("folder", photos, table=table, max_rejected=0.9)
    assert report.records == 1
    assert [item.line for item in report.rejections.items] == [3, 4]
    assert "'other'" in report.rejections.items[0].reason


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no images"):
        import_data_set("folder", tmp_path)


def test_only_folders_have_a_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="table"):
        import_data_set("karpathy", tmp_path, table=tmp_path / "t.csv")
