"""Media with a DICOMDIR: its records are followed, and what they name in vain is said."""

from pathlib import Path
from typing import Final

import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.fileset import FileSet
from pydicom.sequence import Sequence
from pydicom.uid import UID, ExplicitVRLittleEndian, MediaStorageDirectoryStorage

from tests.dicom_films import encoded, make_film
from training.common.errors import DataError
from training.importing.dicom.places import NamedFiles, find_places

ORDER: Final = "; all its records are read in their order."


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    """A medium of three films, as a program writes it."""
    files = FileSet()
    for number in range(3):
        film = make_film(number, patient=number // 2, study=number // 2)
        files.add(film)
    folder = tmp_path / "medium"
    files.write(folder)
    return folder


def _names(source: Path) -> list[str]:
    return [place.path.name for place in find_places(source).places]


@pytest.mark.parametrize("inside", ["", "DICOMDIR"])
def test_the_files_of_the_records_are_taken(medium: Path, inside: str) -> None:
    (medium / "README.TXT").write_text("viewer")
    source = find_places(medium / inside)
    assert len(source.places) == 3
    assert not source.refused and not source.notes
    assert source.left_out == {"files that the DICOMDIR does not name": 1}


def test_missing_files_are_refused_by_their_number(medium: Path) -> None:
    find_places(medium).places[1].path.unlink()
    source = find_places(medium)
    assert [(refused.line, refused.reason) for refused in source.refused] == [
        (2, "the DICOMDIR names it, and it is not on the medium")
    ]
    assert [place.number for place in source.places] == [1, 3]


def test_names_are_found_in_small_letters_and_with_versions(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "im1.;1").write_bytes(b"1")
    named = NamedFiles(tmp_path)
    assert named.find(("IMAGES", "IM1")) == tmp_path / "images" / "im1.;1"
    assert named.find(("IMAGES", "IM2")) is None


@pytest.mark.parametrize("ending", [".dcm", ".DCM", ".dicom", ".dcm;1"])
def test_files_with_an_ending_that_the_directory_lacks_are_found(medium: Path, ending: str) -> None:
    for place in find_places(medium).places:
        place.path.rename(place.path.with_name(place.path.name + ending))
    source = find_places(medium)
    assert (len(source.places), source.refused, source.left_out) == (3, [], {})


def test_a_file_of_the_very_name_goes_before_one_with_an_ending(medium: Path) -> None:
    first, second, _ = (place.path for place in find_places(medium).places)
    first.with_name(first.name + ".dcm").write_bytes(b"a copy")
    second.rename(second.with_name(second.name + ".txt"))
    source = find_places(medium)
    assert source.places[0].path == first
    assert [refused.line for refused in source.refused] == [2]


@pytest.mark.parametrize("parts", [(), ("..", "outside"), ("A/../..", "outside"), ("link",), ("X",) * 9])
def test_no_name_leads_out_of_the_medium(tmp_path: Path, parts: tuple[str, ...]) -> None:
    (tmp_path / "outside").write_bytes(b"1")
    medium = tmp_path / "medium"
    medium.mkdir()
    (medium / "link").symlink_to(tmp_path / "outside")
    assert NamedFiles(medium).find(parts) is None


def _written(folder: Path, links: list[tuple[int, int]], first: int | None = None) -> Path:
    """Write a DICOMDIR whose records have these links, next and below, to records by number; -1: nowhere."""
    folder.mkdir()
    directory = Dataset()
    records = []
    for number in range(len(links)):
        record = Dataset()
        record.OffsetOfTheNextDirectoryRecord = record.OffsetOfReferencedLowerLevelDirectoryEntity = 0
        record.RecordInUseFlag = 0xFFFF
        record.DirectoryRecordType = "IMAGE"
        record.ReferencedFileID = ["IMAGES", f"F{number}"]
        records.append(record)
    (folder / "IMAGES").mkdir()
    directory.OffsetOfTheFirstDirectoryRecordOfTheRootDirectoryEntity = 0
    directory.DirectoryRecordSequence = Sequence(records)
    directory.file_meta = FileMetaDataset()
    directory.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    directory.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    directory.file_meta.MediaStorageSOPInstanceUID = UID("1.2.3")
    path = folder / "DICOMDIR"
    directory.save_as(path, enforce_file_format=True)
    places = [int(item.seq_item_tell) for item in dcmread(path).DirectoryRecordSequence]
    for record, (after, below) in zip(records, links, strict=True):
        record.OffsetOfTheNextDirectoryRecord = places[after - 1] if after > 0 else max(0, -after)
        record.OffsetOfReferencedLowerLevelDirectoryEntity = places[below - 1] if below > 0 else 0
    directory.OffsetOfTheFirstDirectoryRecordOfTheRootDirectoryEntity = places[0] if first is None else first
    directory.save_as(path, enforce_file_format=True)
    for number in range(len(links)):
        (folder / "IMAGES" / f"F{number}").write_bytes(encoded(make_film(number)))
    return folder


def test_a_chain_of_records_is_followed(tmp_path: Path) -> None:
    source = find_places(_written(tmp_path / "medium", [(2, 0), (0, 3), (0, 0)]))
    assert [place.path.name for place in source.places] == ["F0", "F1", "F2"]
    assert not source.notes


def test_circles_are_said_and_end(tmp_path: Path) -> None:
    source = find_places(_written(tmp_path / "medium", [(2, 0), (1, 2), (0, 0)]))
    assert [place.path.name for place in source.places] == ["F0", "F1", "F2"]
    assert source.notes == [
        f"Links of the DICOMDIR that lead to a record a second time: 2{ORDER}",
        f"Records of the DICOMDIR that no link reaches: 1{ORDER}",
    ]


def test_links_to_nowhere_are_said(tmp_path: Path) -> None:
    source = find_places(_written(tmp_path / "medium", [(-99, 0)]))
    assert source.notes == [f"Links of the DICOMDIR that lead to no record: 1{ORDER}"]


@pytest.mark.parametrize("content", [b"", b"nothing", bytes(128) + b"DICM" + b"\x02\x00\x10\x00UI\xff\xff"])
def test_what_is_no_directory_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "DICOMDIR").write_bytes(content)
    with pytest.raises(DataError, match="DICOMDIR cannot be followed"):
        find_places(tmp_path)
