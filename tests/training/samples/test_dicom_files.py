"""Drawn radiographs as DICOM files."""

from pathlib import Path

import numpy as np
import pydicom

from tests.training.samples.test_sample_data import digests
from training.clinical.dicom.objects import Kind, kind_of
from training.common.manifest import read_manifest
from training.imaging.images import decode_image
from training.samples import write_sample_data


def test_each_radiograph_is_a_study_with_its_pixels_and_factors(tmp_path: Path) -> None:
    write_sample_data(tmp_path / "a", images=12, seed=3, size=33, dicom=True)
    records = read_manifest(tmp_path / "a" / "radiographs").records
    files = sorted((tmp_path / "a" / "dicom").iterdir())
    assert [file.stem for file in files] == [record.id for record in records]
    films = [pydicom.dcmread(file) for file in files]
    # An import takes them all.
    assert {kind_of(film) for film in films} == {Kind()}
    for film, record in zip(films, records, strict=True):
        picture = decode_image((tmp_path / "a" / "radiographs" / record.image).read_bytes())
        assert np.array_equal(film.pixel_array, np.asarray(picture.convert("L")))
        known = record.metadata
        view = {"LATERAL": "LL"}.get(str(known["view"]), known["view"])
        assert (film.Modality, film.ViewPosition, film.PatientID) == ("DX", view, record.group)
        assert (film.PatientSex, int(film.PatientAge[:3])) == (known["sex"], known["age"])
        assert int(film.StudyDate[:4]) == known["year"]
    for keyword in ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "AccessionNumber"):
        assert len({film[keyword].value for film in films}) == 12
    # Some patients have priors.
    assert len({film.PatientID for film in films}) < 12


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_sample_data(tmp_path / name, images=3, seed=seed, size=32, dicom=True)
    first, again, other = (digests(tmp_path / name / "dicom") for name in "abc")
    assert first == again
    assert all(first[name] != other[name] for name in first)
