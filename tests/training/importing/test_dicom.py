"""The import of films: every file is taken, refused or left out, and nothing of its owner comes along."""

import csv
import io
import json
import os
import random
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from pydicom import Dataset, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.fileset import FileSet
from pydicom.sequence import Sequence
from pydicom.uid import (
    UID,
    CTImageStorage,
    ExplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
    SecondaryCaptureImageStorage,
)

from tests.dicom_films import MARKER, encoded, make_film, uid
from tests.dicom_markers import jpeg_film, marked_film
from tests.training.importing.trees import imported, write
from training.clinical.pseudonyms import keyed_hash
from training.common.errors import DataError, ImageError
from training.common.manifest import read_manifest
from training.imaging.images import ImageLimits, decode_whole
from training.importing import dicom
from training.importing.dicom import (
    Examined,
    SourceFile,
    examine,
    examine_all,
    find_source_files,
    read_source_file,
)
from training.importing.layouts import Source
from training.importing.report import ImportReport

KEY: Final = bytes(range(32))


def import_films(source: Path, out: Path, **options: Any) -> ImportReport:
    return imported("dicom", source, out, key=KEY, **options)


def examined(folder: Path, content: bytes, **options: Any) -> Examined:
    """Examine one file; new films are written into images in the folder."""
    write(folder, "1", content)
    (folder / "images").mkdir(exist_ok=True)
    return examine(SourceFile(1, folder / "1"), Source(folder / "1", folder, key=KEY, **options))


def film_of(folder: Path, outcome: Examined) -> bytes:
    (name,) = outcome.aside.values()
    return (folder / "images" / name).read_bytes()


def _text_film(number: int) -> Dataset:
    film = make_film(number, rows=512, columns=512)
    picture = Image.fromarray((np.frombuffer(film.PixelData, "<u2").reshape(512, 512) >> 4).astype(np.uint8))
    drawing = ImageDraw.Draw(picture)
    drawing.rectangle((0, 0, 300, 40), fill=0)
    drawing.text((10, 5), "DOE, JANE 1960", font=ImageFont.load_default(24), fill=255)
    film.PixelData = (np.asarray(picture).astype("<u2") << 4).tobytes()
    return film


def _moving(number: int, frames: int, **attributes: Any) -> Dataset:
    film = make_film(number, Modality="RF", SOPClassUID="1.2.840.10008.5.1.4.1.1.12.2", **attributes)
    film.PixelData = b"".join(make_film(number + frame).PixelData for frame in range(frames))
    film.NumberOfFrames = frames
    return film


@dataclass(frozen=True)
class Everything:
    """A run over one folder of everything."""

    out: Path
    source: Path
    report: ImportReport

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """Lines of the manifest by id."""
        lines = (self.out / "manifest.jsonl").read_text().splitlines()
        return {line["id"]: line for line in map(json.loads, lines)}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    base = tmp_path_factory.mktemp("import")
    source, out = base / f"{MARKER}_folder", base / "out"
    other = make_film(3)
    other.WindowWidth = "77"
    films = {
        "1": make_film(1),
        "A/2.dcm": make_film(2, study=1, view="LL"),
        f"A/{MARKER}^NAME.dcm": make_film(3),
        # After it by name, with another picture of the same UID.
        "A/z3-other": other,
        "copy": make_film(1),
        "burned": make_film(10, BurnedInAnnotation="YES"),
        "capture": make_film(11, SOPClassUID=SecondaryCaptureImageStorage, ConversionType="WSD"),
        "ct": make_film(12, Modality="CT", SOPClassUID=CTImageStorage),
        "text": _text_film(13),
        "burned run": _moving(40, 2, BurnedInAnnotation="YES"),
        "moving": _moving(20, 3),
    }
    files = {name: encoded(film) for name, film in films.items()} | {
        "cut": encoded(make_film(30))[:3000],
        "nouid": encoded(make_film(31)).replace(uid("film", 31).encode(), b"x" * len(uid("film", 31))),
        "note.txt": b"nothing",
        "empty": b"",
    }
    for name, content in files.items():
        write(source, name, content)
    yield Everything(out, source, import_films(source, out))


def test_all_files_are_accounted_for(everything: Everything) -> None:
    (tally,) = everything.report.tallies
    assert (tally.found, tally.taken, tally.refused) == (15, 5, 2)
    assert tally.left_out == {
        "files that are not DICOM": 2,
        "copies of instances that came before": 1,
        "quarantined: BurnedInAnnotation is YES": 2,
        "quarantined: secondary capture": 1,
        "quarantined: text at the top left": 1,
        "objects of CT Image Storage: --modality CT takes them": 1,
    }
    with (everything.out / "quarantine.csv").open(newline="") as file:
        assert {row["sop"]: row["reason"] for row in csv.DictReader(file)} == {
            uid("film", 10): "BurnedInAnnotation is YES",
            uid("film", 40): "BurnedInAnnotation is YES",
            uid("film", 11): "secondary capture",
            uid("film", 13): "text at the top left",
        }
    assert len(read_manifest(everything.out).records) == 7


def test_refused_files_are_named_by_number(everything: Everything) -> None:
    paths = sorted(str(path) for path in everything.source.rglob("*") if path.is_file())
    order = {Path(path).name: number for number, path in enumerate(paths, 1)}
    first, second = everything.report.rejections.named()
    assert first == (
        f"File {order['z3-other']}: another instance {uid('film', 3)} came before, as file "
        f"{order[f'{MARKER}^NAME.dcm']}."
    )
    assert second.startswith(f"File {order['cut']}: The DICOM image is damaged")
    assert everything.report.notes == [
        "File numbers are places in: find SOURCE -type f | LC_ALL=C sort.",
        "Files without a SOP Instance UID, with ids made of their content: 1.",
        "Review the films in quarantine.csv; --take-quarantined takes those that you list.",
    ]


def test_metadata_group_and_split_are_those_of_the_patient(everything: Everything) -> None:
    first, second = (everything.records[uid("film", number)] for number in (1, 2))
    assert first["metadata"]["study"] == second["metadata"]["study"] == uid("study", 1)
    patient = keyed_hash(KEY, "patient", f"{MARKER}P1")
    assert first["group"] == second["group"] == first["metadata"]["patient"] == patient
    assert first["split"] == second["split"]
    assert (first["metadata"]["view"], second["metadata"]["view"]) == ("PA", "LL")
    assert first["metadata"]["date"] < "2024-01-15"
    assert first["image"] == f"images/{uid('film', 1)}.dcm"


def test_films_and_frames_are_images_of_their_own(everything: Everything) -> None:
    content = (everything.source / "moving").read_bytes()
    for frame in (1, 2, 3):
        record = everything.records[f"{uid('film', 20)}.{frame}"]
        assert (record["metadata"]["frame"], record["metadata"]["sop"]) == (frame, uid("film", 20))
        film = decode_whole(everything.out / record["image"])
        assert film.header.frames == 1
        assert np.array_equal(np.asarray(film.pixels), np.asarray(decode_whole(content, frame=frame).pixels))
    content = (everything.out / "images" / f"{uid('film', 1)}.dcm").read_bytes()
    assert dcmread(io.BytesIO(content)).pixel_array.shape == (64, 56)


def test_nothing_that_was_written_has_a_marker_or_is_half_written(everything: Everything) -> None:
    written = [path for path in everything.out.rglob("*") if path.is_file()]
    assert len(written) == 9
    for path in written:
        assert MARKER.encode() not in path.read_bytes()
        assert MARKER not in str(path.relative_to(everything.out))
        assert not path.name.endswith(".part")
    said = [*everything.report.sentences(), *everything.report.rejections.named()]
    assert not any(MARKER in sentence for sentence in said)


@pytest.mark.slow
def test_an_import_goes_on_and_takes_what_was_looked_at(everything: Everything, tmp_path: Path) -> None:
    looked_at = f"sop,reason\n{uid('film', 13)},text at the top left\n{uid('film', 10)}\n{uid('film', 40)}\n"
    write(tmp_path, "looked-at.csv", looked_at)
    images = everything.out / "images"
    # As a killed run leaves it.
    write(images, ".7.0.part", b"half")
    before = {path: path.stat().st_mtime_ns for path in images.glob("*.dcm")}
    report = import_films(everything.source, everything.out, take_quarantined=tmp_path / "looked-at.csv")
    assert report.records == 11
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(images.glob(".*"))
    # Without the list, all are in quarantine again.
    assert import_films(everything.source, everything.out).records == 7
    assert len(list(images.glob("*.dcm"))) == 7


def test_dates_are_shifted_or_kept_and_a_film_says_which(everything: Everything, tmp_path: Path) -> None:
    film = dcmread(everything.out / "images" / f"{uid('film', 1)}.dcm")
    assert film.LongitudinalTemporalInformationModified == "MODIFIED"
    assert everything.records[uid("film", 1)]["metadata"]["date_shifted"] is True
    kept = examined(tmp_path, encoded(make_film(1)), keep_dates=True)
    assert kept.metadata["date"] == "2024-01-15"
    film = dcmread(io.BytesIO(film_of(tmp_path, kept)))
    assert "LongitudinalTemporalInformationModified" not in film


def test_without_a_patient_films_of_a_study_are_a_group(tmp_path: Path) -> None:
    outcome = examined(tmp_path, encoded(make_film(1, PatientID="")))
    assert "patient" not in outcome.metadata
    assert outcome.group == keyed_hash(KEY, "study", uid("study", 1))


def _stripped(number: int, *keywords: str) -> bytes:
    film = make_film(number)
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID
    for keyword in keywords:
        delattr(film, keyword)
    return encoded(film)


@pytest.mark.slow
def test_films_stripped_of_what_tells_them_are_taken_by_their_file_meta_information(tmp_path: Path) -> None:
    gone = ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "Modality", "PatientID")
    source, out = tmp_path / "in", tmp_path / "out"
    for number in (1, 2):
        write(source, f"{number}.dicom", _stripped(number, *gone, "StudyDate", "ImageType"))
    # Neither says anything: such files may hold anything, and a person looks at them.
    bare = _stripped(3, *gone)
    write(source, "unknown", bare[bare.index(b"\x08\0\x08\0CS") :])
    # The same film twice, without a UID of its own.
    made = _stripped(4, "SOPInstanceUID")
    for name in ("a", "b"):
        write(source, name, made[made.index(b"\x08\0\x08\0CS") :])
    report = import_films(source, out)
    (tally,) = report.tallies
    assert (tally.taken, tally.refused) == (3, 0)
    assert tally.left_out == {
        "quarantined: neither SOP class nor modality is stated": 1,
        "copies of instances that came before": 1,
    }
    records = read_manifest(out).records
    (own,) = {record.id for record in records} - {uid("film", 1), uid("film", 2)}
    assert own.startswith("2.25.")
    assert len({record.group for record in records}) == 3
    assert set(report.notes[:2]) == {
        "Files without a SOP Instance UID, with ids made of their content: 1.",
        "Files without a Study Instance UID, which are in no study: 2.",
    }
    write(tmp_path, "looked-at.csv", (out / "quarantine.csv").read_text())
    assert import_films(source, out, take_quarantined=tmp_path / "looked-at.csv").records == 4


@pytest.mark.slow
def test_windows_that_show_nothing_are_counted(tmp_path: Path) -> None:
    for number, (centre, width) in enumerate([(2048, 4096), (5000, 50), (2048, 200_000)], 1):
        film = make_film(number, WindowCenter=str(centre), WindowWidth=str(width))
        write(tmp_path / "in", str(number), encoded(film))
    assert import_films(tmp_path / "in", tmp_path / "out").notes == [
        "New films read without their window or lookup table, which shows nothing of the picture: 2."
    ]


def test_a_film_keeps_the_window_that_shows_it(tmp_path: Path) -> None:
    windows: dict[str, Any] = {"WindowCenter": ["9000", "2000"], "WindowWidth": ["200", "2400"]}
    content = encoded(make_film(1, **windows))
    outcome = examined(tmp_path, content)
    film = decode_whole(film_of(tmp_path, outcome))
    assert film.pixels.tobytes() == decode_whole(content).pixels.tobytes()
    assert outcome.unfit == 0


def test_limits_and_modalities_are_those_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encoded(make_film(1))
    refused = examined(tmp_path, content, limits=ImageLimits(max_pixels=64 * 56 - 1)).refused
    assert refused.endswith("(RECOQUEST_MAX_IMAGE_PIXELS)")
    small = ImageLimits(max_bytes=1000, max_pixels=64 * 56)
    refused = examined(tmp_path, content + bytes(2 << 20), limits=small).refused
    assert "(RECOQUEST_MAX_IMAGE_BYTES)" in refused
    ct = encoded(make_film(1, Modality="CT", SOPClassUID=CTImageStorage))
    assert examined(tmp_path, ct, modality=frozenset({"ct"})).films
    # Without preamble.
    assert examined(tmp_path, content[132:]).films == [f"{uid('film', 1)}.dcm"]
    monkeypatch.setattr(dicom, "MOST_FRAMES", 2)
    outcome = examined(tmp_path, encoded(_moving(20, 3)))
    assert (len(outcome.films), outcome.frames_left_out) == (2, 1)


def test_what_cannot_be_imported_is_said(tmp_path: Path) -> None:
    write(tmp_path, "1", encoded(make_film(1)))
    for inside in ("", "out"):
        with pytest.raises(DataError, match="outside of the source"):
            import_films(tmp_path, tmp_path / inside)
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    with pytest.raises(DataError, match="There is no file in the source"):
        import_films(tmp_path / "empty", out)
    with pytest.raises(DataError, match="XY is no modality"):
        import_films(tmp_path / "1", out, modality=frozenset({"XY"}))
    with pytest.raises(DataError, match="gone cannot be read; give a text file with SOP Instance UIDs"):
        import_films(tmp_path / "1", out, take_quarantined=tmp_path / "gone")
    (out / "images").rmdir()
    (out / "images").symlink_to(tmp_path / "empty")
    with pytest.raises(DataError, match="images leads to images elsewhere"):
        import_films(tmp_path / "1", out)
    # Processes say it, too.
    with pytest.raises(DataError, match="The films cannot be written: No such file or directory"):
        list(examine_all([SourceFile(1, tmp_path / "1")], Source(tmp_path, tmp_path / "gone", key=KEY)))


def _children() -> list[str]:
    """The processes that examine files for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
            if int(stat[1]) == os.getpid() and b"training.importing.dicom" in command:
                found.append(folder.name)
    return found


@pytest.mark.slow
def test_a_film_that_takes_too_much_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dicom, "MEMORY_BYTES", 200_000_000)
    for number in range(1, 4):
        side = 4096 if number == 2 else 64
        write(tmp_path, str(number), encoded(make_film(number, rows=side, columns=side)))
    (tmp_path / "images").mkdir()
    files = [SourceFile(number, tmp_path / str(number)) for number in range(1, 4)]
    outcomes = examine_all(files, Source(tmp_path, tmp_path, key=KEY))
    first = next(outcomes)
    assert _children()
    assert [bool(outcome.films) for outcome in (first, *outcomes)] == [True, False, True]
    assert not _children()


def test_a_source_that_is_not_there_is_said_without_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there") as raised:
        find_source_files(tmp_path / MARKER)
    assert MARKER not in str(raised.value)


def test_a_zip_archive_is_read_without_being_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "films.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (("../../outside.dcm", b"first"), ("folder/", b""), ("/absolute", b"second")):
            file.writestr(name, content)
    source = find_source_files(archive)
    assert [(file.number, read_source_file(file, 10)) for file in source.files] == [
        (1, b"first"),
        (2, b"second"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["films.zip"]


def test_zip_archives_that_inflate_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dicom, "_SMALL_ARCHIVE", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("1", bytes(3_000_000))
    with pytest.raises(DataError, match="says that it holds"):
        find_source_files(tmp_path / "bomb.zip")


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
    (member,) = find_source_files(path).files
    with pytest.raises(ImageError, match=reason):
        read_source_file(member, 1 << 20)


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
    source = find_source_files(medium / inside)
    assert (len(source.files), source.refused) == (3, [])
    assert source.left_out == {"files that the DICOMDIR does not name": 1}
    source.files[1].path.unlink()
    source = find_source_files(medium)
    assert [(refused.line, refused.reason) for refused in source.refused] == [
        (2, "the DICOMDIR names it, and it is not on the medium")
    ]
    assert [file.number for file in source.files] == [1, 3]


@pytest.mark.parametrize("ending", [".dcm", ".DCM", ".dicom", ".dcm;1"])
def test_files_with_an_ending_that_the_directory_lacks_are_found(medium: Path, ending: str) -> None:
    for file in find_source_files(medium).files:
        file.path.rename(file.path.with_name(file.path.name + ending))
    source = find_source_files(medium)
    assert (len(source.files), source.refused, source.left_out) == (3, [], {})


def test_a_file_of_the_very_name_goes_before_one_with_an_ending(medium: Path) -> None:
    first, second, _ = (file.path for file in find_source_files(medium).files)
    first.with_name(first.name + ".dcm").write_bytes(b"a copy")
    second.rename(second.with_name(second.name + ".txt"))
    source = find_source_files(medium)
    assert source.files[0].path == first
    assert [refused.line for refused in source.refused] == [2]


def directory_of(folder: Path, *files: tuple[str, ...], unused: int = -1) -> None:
    """Write a DICOMDIR whose records name files; one record is not in use."""
    records = []
    for number, parts in enumerate(files):
        record = Dataset()
        # The second leads back to the first, and the third to nowhere.
        record.OffsetOfTheNextDirectoryRecord = (0, 1, 99)[number % 3]
        record.OffsetOfReferencedLowerLevelDirectoryEntity = 0
        record.RecordInUseFlag = 0 if number == unused else 0xFFFF
        record.DirectoryRecordType = "IMAGE"
        record.ReferencedFileID = list(parts)
        records.append(record)
    directory = Dataset()
    directory.OffsetOfTheFirstDirectoryRecordOfTheRootDirectoryEntity = 0
    directory.DirectoryRecordSequence = Sequence(records)
    directory.file_meta = FileMetaDataset()
    directory.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    directory.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    directory.file_meta.MediaStorageSOPInstanceUID = UID("1.2.3")
    directory.save_as(folder / "DICOMDIR", enforce_file_format=True)


@pytest.mark.filterwarnings("ignore:Invalid value for VR")
def test_names_are_found_in_small_letters_and_with_versions_and_none_leads_outside(tmp_path: Path) -> None:
    write(tmp_path, "medium/images/im1.;1", b"1")
    write(tmp_path, "outside", b"1")
    (tmp_path / "medium" / "link").symlink_to(tmp_path / "outside")
    wrong = (("IMAGES", "IM2"), ("..", "outside"), ("A/../..", "outside"), ("link",), ("X",) * 9)
    directory_of(tmp_path / "medium", ("IMAGES", "IM1"), *wrong)
    source = find_source_files(tmp_path / "medium")
    assert [file.path.name for file in source.files] == ["im1.;1"]
    assert [refused.line for refused in source.refused] == [2, 3, 4, 5, 6]


def test_records_in_use_count_whatever_their_links(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, f"IMAGES/F{number}", b"film")
    directory_of(tmp_path, *(("IMAGES", f"F{number}") for number in range(4)), unused=3)
    source = find_source_files(tmp_path)
    assert [file.path.name for file in source.files] == ["F0", "F1", "F2"]
    assert source.left_out == {"files that the DICOMDIR does not name": 1}


@pytest.mark.parametrize("content", [b"", b"nothing", bytes(128) + b"DICM" + b"\x02\x00\x10\x00UI\xff\xff"])
def test_what_is_no_directory_is_said(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "DICOMDIR", content)
    with pytest.raises(DataError, match="DICOMDIR cannot be followed"):
        find_source_files(tmp_path)


_WORDS = (b"SQ", b"OB", b"UN", b"US", b"PN", b"OW", b"\xff\xff", b"\xfe\xff\x00\xe0")


def _damaged(content: bytes, draw: random.Random) -> bytes:
    """Change bytes, lengths and representations, cut pieces out and put others in; mostly in the header."""
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        place = draw.randrange(len(damaged) if draw.random() < 0.3 else min(len(damaged), 3000))
        match draw.randrange(5):
            case 0:
                damaged[place] = draw.randrange(256)
            case 1:
                damaged[place : place + 4] = b"\xff\xff\xff\xff"
            case 2:
                del damaged[place : place + draw.randrange(1, 40)]
            case 3:
                damaged[place:place] = draw.randbytes(8)
            case _:
                word = draw.choice(_WORDS)
                damaged[place : place + len(word)] = word
    return bytes(damaged)


@pytest.mark.parametrize("representation", [b"US", b"SS", b"UL", b"SL", b"FD"])
@pytest.mark.parametrize("number", [0x1050, 0x1051, 0x1052, 0x1053])
def test_numbers_in_another_representation_leave_the_picture_as_it_is(
    tmp_path: Path, number: int, representation: bytes
) -> None:
    film = make_film(1)
    film.WindowCenter, film.WindowWidth = "40000001", "16000001"
    film.RescaleIntercept, film.RescaleSlope = "16000001", "16000001"
    content = bytearray(encoded(film))
    place = content.index(b"\x28\0" + number.to_bytes(2, "little") + b"DS")
    content[place + 4 : place + 6] = representation
    outcome = examined(tmp_path, bytes(content))
    assert not outcome.refused
    written = decode_whole(film_of(tmp_path, outcome))
    assert written.pixels.tobytes() == decode_whole(bytes(content)).pixels.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_end_in_an_outcome_without_their_words(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    films = [encoded(marked_film(1)), encoded(jpeg_film(2))]
    outcomes = set()
    for _ in range(60):
        content = _damaged(draw.choice(films), draw)
        started = time.perf_counter()
        outcome = examined(tmp_path, content)
        assert time.perf_counter() - started < 2
        reason = outcome.refused or outcome.left_out or outcome.quarantined
        assert reason or outcome.films
        assert MARKER not in reason and MARKER not in repr(outcome.metadata)
        outcomes.add(bool(outcome.refused))
    assert outcomes == {True, False}
