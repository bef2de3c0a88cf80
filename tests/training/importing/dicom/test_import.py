"""The import of films: every file is taken, refused or left out, and nothing of its owner comes along."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from pydicom import Dataset, dcmread
from pydicom.uid import CTImageStorage, SecondaryCaptureImageStorage

from tests.dicom_films import MARKER, encoded, make_film, uid
from training.clinical.pseudonyms import keyed_hash
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.imaging.images import ImageLimits, decode_whole
from training.importing.dicom import examination, places
from training.importing.dicom.examination import Rules, examine
from training.importing.dicom.importing import import_dicom
from training.importing.dicom.places import Place, find_places
from training.importing.report import ImportReport

KEY: Final = bytes(range(32))
FOLDER: Final = f"{MARKER}_folder"


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
class Imported:
    """A run over one folder of everything.

    Attributes:
        out: Folder of the manifest.
        source: The folder.
        report: Its report.
    """

    out: Path
    source: Path
    report: ImportReport

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """Lines of the manifest by id."""
        lines = (self.out / "manifest.jsonl").read_text().splitlines()
        return {line["id"]: line for line in map(json.loads, lines)}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imported]:
    base = tmp_path_factory.mktemp("import")
    source, out = base / FOLDER, base / "out"
    (source / "A").mkdir(parents=True)
    other = make_film(3)
    other.WindowWidth = "77"
    files = {
        "1": encoded(make_film(1)),
        "A/2.dcm": encoded(make_film(2, study=1, view="LL")),
        f"A/{MARKER}^NAME.dcm": encoded(make_film(3)),
        # After it by name, with another picture of the same UID.
        "A/z3-other": encoded(other),
        "copy": encoded(make_film(1)),
        "burned": encoded(make_film(10, BurnedInAnnotation="YES")),
        "capture": encoded(make_film(11, SOPClassUID=SecondaryCaptureImageStorage, ConversionType="WSD")),
        "ct": encoded(make_film(12, Modality="CT", SOPClassUID=CTImageStorage)),
        "text": encoded(_text_film(13)),
        "burned run": encoded(_moving(40, 2, BurnedInAnnotation="YES")),
        "moving": encoded(_moving(20, 3)),
        "cut": encoded(make_film(30))[:3000],
        "nouid": encoded(make_film(31)).replace(uid("film", 31).encode(), b"x" * len(uid("film", 31))),
        "note.txt": b"nothing",
        "empty": b"",
    }
    for name, content in files.items():
        (source / name).write_bytes(content)
    report = import_dicom(source, out, key=KEY, max_rejected=0.5)
    yield Imported(out, source, report)


def test_all_files_are_accounted_for(imported: Imported) -> None:
    (tally,) = imported.report.tallies
    assert (tally.found, tally.taken, tally.refused, tally.unaccounted) == (15, 5, 2, 0)
    assert tally.left_out == {
        "files that are not DICOM": 2,
        "copies of instances that came before": 1,
        "quarantined: BurnedInAnnotation is YES": 2,
        "quarantined: secondary capture": 1,
        "quarantined: text at the top left": 1,
        "objects of CT Image Storage: --modality CT takes them": 1,
    }


def test_refused_files_are_named_by_number(imported: Imported) -> None:
    named = imported.report.rejections.named()
    paths = sorted(str(path) for path in imported.source.rglob("*") if path.is_file())
    order = {Path(path).name: number for number, path in enumerate(paths, 1)}
    assert len(named) == 2
    assert named[0] == (
        f"File {order['z3-other']}: another instance {uid('film', 3)} came before, as file "
        f"{order[f'{MARKER}^NAME.dcm']}."
    )
    assert named[1].startswith(f"File {order['cut']}: The DICOM image is damaged")
    assert imported.report.notes == [
        "File numbers are places in: find SOURCE -type f | LC_ALL=C sort.",
        "Files without a SOP Instance UID, with ids made of their content: 1.",
        "Review the films in quarantine.csv; --take-quarantined takes those that you list.",
    ]


def test_metadata_group_and_split_are_those_of_the_patient(imported: Imported) -> None:
    first, second = (imported.records[uid("film", number)] for number in (1, 2))
    assert first["metadata"]["study"] == second["metadata"]["study"] == uid("study", 1)
    assert (
        first["group"]
        == second["group"]
        == first["metadata"]["patient"]
        == keyed_hash(KEY, "patient", f"{MARKER}P1")
    )
    assert first["split"] == second["split"]
    assert (first["metadata"]["view"], second["metadata"]["view"]) == ("PA", "LL")
    assert first["metadata"]["date"] < "2024-01-15"
    assert first["image"] == f"images/{uid('film', 1)}.dcm"


def test_frames_are_images_of_their_own(imported: Imported) -> None:
    source = (imported.source / "moving").read_bytes()
    for frame in (1, 2, 3):
        record = imported.records[f"{uid('film', 20)}.{frame}"]
        assert (record["metadata"]["frame"], record["metadata"]["sop"]) == (frame, uid("film", 20))
        film = decode_whole(imported.out / record["image"])
        assert film.header.frames == 1
        assert np.array_equal(np.asarray(film.pixels), np.asarray(decode_whole(source, frame=frame).pixels))


def test_quarantined_instances_are_listed_with_their_reasons(imported: Imported) -> None:
    with (imported.out / "quarantine.csv").open(newline="") as file:
        assert {row["sop"]: row["reason"] for row in csv.DictReader(file)} == {
            uid("film", 10): "BurnedInAnnotation is YES",
            uid("film", 40): "BurnedInAnnotation is YES",
            uid("film", 11): "secondary capture",
            uid("film", 13): "text at the top left",
        }


def test_no_file_that_was_written_has_a_marker(imported: Imported) -> None:
    written = [path for path in imported.out.rglob("*") if path.is_file()]
    assert len(written) == 9
    for path in written:
        assert MARKER.encode() not in path.read_bytes()
        assert MARKER not in str(path.relative_to(imported.out))
    said = [*imported.report.sentences(), *imported.report.rejections.named()]
    assert not any(MARKER in sentence for sentence in said)


def test_nothing_half_written_is_left(imported: Imported) -> None:
    assert not [path for path in imported.out.rglob("*") if path.name.endswith(".part")]


def test_the_manifest_can_be_read(imported: Imported) -> None:
    assert len(read_manifest(imported.out).records) == 7


@pytest.mark.slow
def test_an_import_goes_on_and_takes_what_was_looked_at(imported: Imported, tmp_path: Path) -> None:
    looked_at = tmp_path / "looked-at.csv"
    looked_at.write_text(
        f"sop,reason\n{uid('film', 13)},text at the top left\n{uid('film', 10)}\n{uid('film', 40)}\n"
    )
    # As a killed run leaves it.
    (imported.out / "images" / ".7.0.part").write_bytes(b"half")
    before = {path: path.stat().st_mtime_ns for path in (imported.out / "images").glob("*.dcm")}
    report = import_dicom(imported.source, imported.out, key=KEY, looked_at=looked_at, max_rejected=0.5)
    assert report.records == 11
    assert {path: path.stat().st_mtime_ns for path in before} == before
    test_nothing_half_written_is_left(imported)
    # Without the list, all are in quarantine again.
    report = import_dicom(imported.source, imported.out, key=KEY, max_rejected=0.5)
    assert report.records == 7
    assert len(list((imported.out / "images").glob("*.dcm"))) == 7


def test_without_a_patient_films_of_a_study_are_a_group(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1, PatientID="")))
    examined = examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY))
    assert "patient" not in examined.metadata
    assert examined.group == keyed_hash(KEY, "study", uid("study", 1))


def test_dates_are_kept_where_the_rules_say_so(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1)))
    examined = examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY, keep_dates=True))
    assert examined.metadata["date"] == "2024-01-15"


def test_a_film_says_whether_its_date_was_shifted(imported: Imported, tmp_path: Path) -> None:
    content = (imported.out / "images" / f"{uid('film', 1)}.dcm").read_bytes()
    assert dcmread(io.BytesIO(content)).LongitudinalTemporalInformationModified == "MODIFIED"
    assert imported.records[uid("film", 1)]["metadata"]["date_shifted"] is True
    (tmp_path / "1").write_bytes(encoded(make_film(1)))
    kept = examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY, keep_dates=True))
    (film,) = kept.aside.values()
    assert "LongitudinalTemporalInformationModified" not in dcmread(film)


def _stripped(number: int, *keywords: str, **attributes: Any) -> bytes:
    film = make_film(number, **attributes)
    film.file_meta.MediaStorageSOPClassUID = film.SOPClassUID
    film.file_meta.MediaStorageSOPInstanceUID = film.SOPInstanceUID
    for keyword in keywords:
        delattr(film, keyword)
    return encoded(film)


@pytest.mark.slow
def test_films_stripped_of_what_tells_them_are_taken_by_their_file_meta_information(tmp_path: Path) -> None:
    gone = ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "Modality", "PatientID")
    source = tmp_path / "in"
    source.mkdir()
    for number in (1, 2):
        (source / f"{number}.dicom").write_bytes(_stripped(number, *gone, "StudyDate", "ImageType"))
    # Neither says anything: such files may hold anything, and a person looks at them.
    bare = _stripped(3, *gone)
    (source / "unknown").write_bytes(bare[bare.index(b"\x08\0\x08\0CS") :])
    # The same film twice, without a UID of its own.
    made = _stripped(4, "SOPInstanceUID")
    start = made.index(b"\x08\0\x08\0CS")
    for name in ("a", "b"):
        (source / name).write_bytes(made[start:])
    report = import_dicom(source, tmp_path / "out", key=KEY)
    (tally,) = report.tallies
    assert (tally.taken, tally.refused) == (3, 0)
    assert tally.left_out == {
        "quarantined: neither SOP class nor modality is stated": 1,
        "copies of instances that came before": 1,
    }
    records = [json.loads(line) for line in (tmp_path / "out" / "manifest.jsonl").read_text().splitlines()]
    ids = [record["id"] for record in records]
    assert {uid("film", 1), uid("film", 2)} < set(ids)
    (own,) = set(ids) - {uid("film", 1), uid("film", 2)}
    assert own.startswith("2.25.")
    assert len({record["group"] for record in records}) == 3
    assert set(report.notes[:2]) == {
        "Files without a SOP Instance UID, with ids made of their content: 1.",
        "Files without a Study Instance UID, which are in no study: 2.",
    }
    looked_at = tmp_path / "looked-at.csv"
    looked_at.write_text((tmp_path / "out" / "quarantine.csv").read_text())
    assert import_dicom(source, tmp_path / "out", key=KEY, looked_at=looked_at).records == 4


@pytest.mark.slow
def test_windows_that_show_nothing_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number, (centre, width) in enumerate([(2048, 4096), (5000, 50), (2048, 200_000)], 1):
        film = make_film(number, WindowCenter=str(centre), WindowWidth=str(width))
        (source / str(number)).write_bytes(encoded(film))
    report = import_dicom(source, tmp_path / "out", key=KEY)
    assert report.notes == [
        "New films read without their window or lookup table, which shows nothing of the picture: 2."
    ]


def test_a_film_keeps_the_window_that_shows_it(tmp_path: Path) -> None:
    windows: dict[str, Any] = {"WindowCenter": ["9000", "2000"], "WindowWidth": ["200", "2400"]}
    content = encoded(make_film(1, **windows))
    (tmp_path / "1").write_bytes(content)
    examined = examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY))
    (film,) = examined.aside.values()
    assert decode_whole(film).pixels.tobytes() == decode_whole(content).pixels.tobytes()
    assert examined.unfit == 0


def test_the_limits_of_an_image_are_those_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1)))
    limits = ImageLimits(max_pixels=64 * 56 - 1)
    refused = examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY, limits=limits)).refused
    assert refused.endswith("(RECOQUEST_MAX_IMAGE_PIXELS)")


def test_frames_above_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "MOST_FRAMES", 2)
    (tmp_path / "1").write_bytes(encoded(_moving(20, 3)))
    examined = examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY))
    assert (len(examined.films), examined.frames_left_out) == (2, 1)


def test_a_modality_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1, Modality="CT", SOPClassUID=CTImageStorage)))
    assert examine(Place(1, tmp_path / "1"), Rules(tmp_path, KEY, modalities=frozenset({"CT"}))).films


@pytest.mark.parametrize("ending", ["", ".dcm"])
def test_films_without_preamble_are_taken(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"1{ending}"
    path.write_bytes(encoded(make_film(1))[132:])
    assert examine(Place(1, path), Rules(tmp_path, KEY)).films == (f"{uid('film', 1)}.dcm",)


def test_a_zip_archive_is_read_without_being_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "films.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../outside.dcm", encoded(make_film(1)))
        file.writestr("folder/", b"")
        file.writestr("/absolute", encoded(make_film(2)))
    source = find_places(archive)
    assert [place.number for place in source.places] == [1, 2]
    films = [examine(place, Rules(tmp_path, KEY)).films for place in source.places]
    assert films == [(f"{uid('film', 1)}.dcm",), (f"{uid('film', 2)}.dcm",)]
    assert {path.name for path in tmp_path.iterdir()} == {"films.zip", ".1.0.part", ".2.0.part"}


def test_zip_archives_that_inflate_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_SMALL_ARCHIVE", 1 << 20)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("1", bytes(3_000_000))
    with pytest.raises(DataError, match="says that it holds"):
        find_places(bomb)


def test_members_of_zip_archives_that_are_damaged_or_encrypted_are_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.zip"
    with zipfile.ZipFile(cut, "w") as file:
        file.writestr("1", encoded(make_film(1)))
    content = bytearray(cut.read_bytes())
    content[2000:2100] = bytes(100)
    cut.write_bytes(content)
    (place,) = find_places(cut).places
    assert examine(place, Rules(tmp_path, KEY)).refused == (
        "it cannot be read: the archive is damaged, or compressed in an unknown way"
    )
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("1", encoded(make_film(1)))
    content = bytearray(packed.read_bytes())
    content[60:160] = bytes(100)
    packed.write_bytes(content)
    (place,) = find_places(packed).places
    assert "the archive is damaged" in examine(place, Rules(tmp_path, KEY)).refused
    # The flag of encryption in the local header and in the directory.
    secret = tmp_path / "secret.zip"
    with zipfile.ZipFile(secret, "w") as file:
        file.writestr("1", b"film")
    content = bytearray(secret.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    secret.write_bytes(content)
    (place,) = find_places(secret).places
    assert "encrypted" in examine(place, Rules(tmp_path, KEY)).refused


@pytest.mark.parametrize("inside", ["", "out"])
def test_the_manifest_goes_outside_of_the_source(tmp_path: Path, inside: str) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1)))
    with pytest.raises(DataError, match="outside of the source"):
        import_dicom(tmp_path, tmp_path / inside, key=KEY)


def test_sources_without_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="There is no file in the source"):
        import_dicom(tmp_path / "empty", tmp_path / "out", key=KEY)
    with pytest.raises(DataError, match="is not there"):
        import_dicom(tmp_path / MARKER, tmp_path / "out", key=KEY)


def test_unknown_modalities_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="XY is no modality"):
        import_dicom(tmp_path, tmp_path / "out", key=KEY, modalities=frozenset({"XY"}))


def test_the_film_is_one_that_pydicom_reads(imported: Imported) -> None:
    film = dcmread(io.BytesIO((imported.out / "images" / f"{uid('film', 1)}.dcm").read_bytes()))
    assert film.pixel_array.shape == (64, 56)
