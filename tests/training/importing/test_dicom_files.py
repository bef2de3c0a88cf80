"""The files of a source of films: zip archives, and media with a DICOMDIR."""

import zipfile
from pathlib import Path

import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.fileset import FileSet
from pydicom.sequence import Sequence
from pydicom.uid import UID, ExplicitVRLittleEndian, MediaStorageDirectoryStorage

from tests.dicom_films import MARKER, encoded, make_film
from tests.training.importing.trees import write
from training.common.errors import DataError, ImageError
from training.importing import dicom_files
from training.importing.dicom_files import NamedFiles, find_places, read_place


def test_a_source_that_is_not_there_is_said_without_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there") as raised:
        find_places(tmp_path / MARKER)
    assert MARKER not in str(raised.value)


def test_a_zip_archive_is_read_without_being_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "films.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (("../../outside.dcm", b"first"), ("folder/", b""), ("/absolute", b"second")):
            file.writestr(name, content)
    source = find_places(archive)
    assert [(place.number, read_place(place, 10)) for place in source.places] == [
        (1, b"first"),
        (2, b"second"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["films.zip"]


def test_zip_archives_that_inflate_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dicom_files, "_SMALL_ARCHIVE", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("1", bytes(3_000_000))
    with pytest.raises(DataError, match="says that it holds"):
        find_places(tmp_path / "bomb.zip")


@pytest.mark.parametrize(
    ("packing", "damage", "reason"),
    [
        (zipfile.ZIP_STORED, {2000: bytes(100)}, "the archive is damaged, or compressed in an unknown way"),
        (zipfile.ZIP_LZMA, {60: bytes(100)}, "the archive is damaged"),
        # The flag of encryption in the local header; that in the directory is found by its mark.
        (zipfile.ZIP_STORED, {6: b"\1"}, "it is encrypted; unpack the archive with its password first"),
    ],
)
def test_members_that_are_damaged_or_encrypted_are_refused(
    tmp_path: Path, packing: int, damage: dict[int, bytes], reason: str
) -> None:
    path = tmp_path / "films.zip"
    with zipfile.ZipFile(path, "w", packing) as file:
        file.writestr("1", encoded(make_film(1)))
    content = bytearray(path.read_bytes())
    for start, changed in damage.items():
        content[start : start + len(changed)] = changed
    if "encrypted" in reason:
        content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    (place,) = find_places(path).places
    with pytest.raises(ImageError, match=reason):
        read_place(place, 1 << 20)


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    """A medium of three films, as a program writes it."""
    files = FileSet()
    for number in range(3):
        files.add(make_film(number, patient=number // 2, study=number // 2))
    files.write(tmp_path / "medium")
    return tmp_path / "medium"


@pytest.mark.parametrize("inside", ["", "DICOMDIR"])
def test_the_files_of_the_records_are_taken(medium: Path, inside: str) -> None:
    write(medium, "README.TXT", "viewer")
    source = find_places(medium / inside)
    assert (len(source.places), source.refused) == (3, [])
    assert source.left_out == {"files that the DICOMDIR does not name": 1}
    source.places[1].path.unlink()
    source = find_places(medium)
    assert [(refused.line, refused.reason) for refused in source.refused] == [
        (2, "the DICOMDIR names it, and it is not on the medium")
    ]
    assert [place.number for place in source.places] == [1, 3]


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


def test_names_are_found_in_small_letters_and_with_versions_and_none_leads_outside(tmp_path: Path) -> None:
    write(tmp_path, "medium/images/im1.;1", b"1")
    write(tmp_path, "outside", b"1")
    (tmp_path / "medium" / "link").symlink_to(tmp_path / "outside")
    named = NamedFiles(tmp_path / "medium")
    assert named.find(("IMAGES", "IM1")) == tmp_path / "medium" / "images" / "im1.;1"
    for parts in ((), ("IMAGES", "IM2"), ("..", "outside"), ("A/../..", "outside"), ("link",), ("X",) * 9):
        assert named.find(parts) is None


def test_records_in_use_count_whatever_their_links(tmp_path: Path) -> None:
    records = []
    for number in range(4):
        record = Dataset()
        # The second leads back to the first, and the third to nowhere.
        record.OffsetOfTheNextDirectoryRecord = (0, 1, 99, 0)[number]
        record.OffsetOfReferencedLowerLevelDirectoryEntity = 0
        record.RecordInUseFlag = 0 if number == 3 else 0xFFFF
        record.DirectoryRecordType = "IMAGE"
        record.ReferencedFileID = ["IMAGES", f"F{number}"]
        records.append(record)
        write(tmp_path, f"IMAGES/F{number}", b"film")
    directory = Dataset()
    directory.OffsetOfTheFirstDirectoryRecordOfTheRootDirectoryEntity = 0
    directory.DirectoryRecordSequence = Sequence(records)
    directory.file_meta = FileMetaDataset()
    directory.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    directory.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    directory.file_meta.MediaStorageSOPInstanceUID = UID("1.2.3")
    directory.save_as(tmp_path / "DICOMDIR", enforce_file_format=True)
    assert len(dcmread(tmp_path / "DICOMDIR").DirectoryRecordSequence) == 4
    source = find_places(tmp_path)
    assert [place.path.name for place in source.places] == ["F0", "F1", "F2"]
    assert source.left_out == {"files that the DICOMDIR does not name": 1}


@pytest.mark.parametrize("content", [b"", b"nothing", bytes(128) + b"DICM" + b"\x02\x00\x10\x00UI\xff\xff"])
def test_what_is_no_directory_is_said(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "DICOMDIR", content)
    with pytest.raises(DataError, match="DICOMDIR cannot be followed"):
        find_places(tmp_path)
