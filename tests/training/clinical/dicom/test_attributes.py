"""Metadata of DICOM images, also of attributes that no standard allows."""

import io
from datetime import date
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom import Dataset, dcmread
from pydicom.dataelem import RawDataElement
from pydicom.dataset import FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.tag import Tag
from pydicom.uid import ExplicitVRLittleEndian

from training.clinical.dicom.attributes import read_attributes, silence_pydicom
from training.clinical.pseudonyms import keyed_hash
from training.common.record import MetadataValue, Record, format_line

KEY: Final = bytes(range(32))


def _film(**attributes: object) -> Dataset:
    silence_pydicom()
    dataset = Dataset()
    dataset.SOPInstanceUID = "1.2.3"
    dataset.StudyInstanceUID = "1.2.1"
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    return dataset


def _raw(vr: str | None = None, **values: bytes) -> Dataset:
    """Attributes as a file has them, before any conversion."""
    dataset = _film()
    for keyword, value in values.items():
        tag = Tag(keyword)
        dataset[tag] = RawDataElement(tag, vr, len(value), value, 0, vr is None, True)
    return dataset


def _coded(*codes: str) -> Sequence:
    items = []
    for code in codes:
        item = Dataset()
        item.CodeValue = code
        items.append(item)
    return Sequence(items)


def _read(dataset: Dataset, *, keep_dates: bool = True) -> dict[str, MetadataValue]:
    return read_attributes(dataset, key=KEY, keep_dates=keep_dates)


def test_a_film_gives_the_whole_contract() -> None:
    film = _film(
        SeriesInstanceUID="1.2.2",
        PatientID="4711",
        AccessionNumber="A1",
        Modality="DX",
        ViewPosition="PA",
        ImageLaterality="L",
        PatientOrientation=["L", "F"],
        PatientAge="065Y",
        PatientSex="M",
        StudyDate="20240229",
        BodyPartExamined="CHEST",
        Manufacturer="Agfa",
        PatientName="Doe^Jane",
        StudyDescription="Chest of Jane Doe",
    )
    expected = {
        "sop": "1.2.3",
        "study": "1.2.1",
        "series": "1.2.2",
        "patient": "7e4b255c2db22401",
        "accession": keyed_hash(KEY, "accession", "A1"),
        "modality": "DX",
        "view": "PA",
        "laterality": "L",
        "orientation": "L\\F",
        "age": 65,
        "sex": "M",
        "date": "2024-02-29",
        "date_shifted": False,
        "body_part": "CHEST",
        "manufacturer": "Agfa",
    }
    assert _read(film) == expected
    assert _read(film, keep_dates=False) == expected | {"date": "2023-07-13", "date_shifted": True}


def test_dates_that_others_have_shifted_are_marked() -> None:
    modified = {"LongitudinalTemporalInformationModified": "MODIFIED"}
    assert _read(_film(StudyDate="20240229", **modified))["date_shifted"] is True
    kept = _film(StudyDate="20240229", LongitudinalTemporalInformationModified="UNMODIFIED")
    assert _read(kept)["date_shifted"] is False
    assert "date_shifted" not in _read(_film(**modified), keep_dates=False)


def test_other_ids_of_a_patient_are_hashed_as_the_first() -> None:
    more = Dataset()
    more.PatientID = "N7"
    film = _film(PatientID="4711", OtherPatientIDs=["N8", "4711"], OtherPatientIDsSequence=Sequence([more]))
    assert _read(film)["other_patients"] == tuple(keyed_hash(KEY, "patient", one) for one in ("N8", "N7"))
    assert "other_patients" not in _read(_film(PatientID="4711"))


def test_dates_of_a_patient_keep_their_distance() -> None:
    first = _read(_film(PatientID="7", StudyDate="20240101"), keep_dates=False)["date"]
    other = _read(_film(PatientID="7 ", StudyDate="20240131"), keep_dates=False)["date"]
    assert isinstance(first, str) and isinstance(other, str)
    assert (date.fromisoformat(other) - date.fromisoformat(first)).days == 30
    assert first < "2024-01-01"


@pytest.mark.parametrize(
    ("attributes", "age"),
    [
        ({"PatientAge": "065Y"}, 65),
        ({"PatientAge": "65"}, 65),
        ({"PatientAge": "018M"}, 1),
        ({"PatientAge": "012M"}, 1),
        ({"PatientAge": "003W"}, 0),
        ({"PatientAge": "090D"}, 0),
        ({"PatientAge": "089Y"}, 89),
        ({"PatientAge": "090Y"}, 90),
        ({"PatientAge": "103Y"}, 90),
        ({"PatientAge": "Jane"}, None),
        ({"PatientAge": "999Y"}, None),
        ({"PatientAge": "000Y", "PatientBirthDate": "19800301", "StudyDate": "20240229"}, 43),
        ({"PatientBirthDate": "19800229", "StudyDate": "20240229"}, 44),
        ({"PatientBirthDate": "19200229", "StudyDate": "20240229"}, 90),
        ({"PatientBirthDate": "20250229", "StudyDate": "20240229"}, None),
        ({"PatientBirthDate": "20250228", "StudyDate": "20240229"}, None),
        ({"PatientBirthDate": "19800229"}, None),
    ],
)
def test_ages(attributes: dict[str, str], age: int | None) -> None:
    assert _read(_film(**attributes)).get("age") == age


@pytest.mark.parametrize("keep_dates", [True, False])
def test_an_age_by_birth_is_that_of_the_true_date(keep_dates: bool) -> None:
    film = _film(PatientID="4711", PatientBirthDate="19800229", StudyDate="20240229")
    assert _read(film, keep_dates=keep_dates)["age"] == 44


# By keyword: the metadata it gives, and its values of any form with what becomes of them.
_VALUES: Final[dict[str, tuple[str, dict[bytes, str | None]]]] = {
    "ViewPosition": (
        "view",
        {
            b"pa \0": "PA",
            b"AP SUPINE": "AP SUPINE",
            b"ap_lordotic ": "AP LORDOTIC",
            b"JANE DOE": None,
            b"": None,
        },
    ),
    "PatientSex": ("sex", {b"F ": "F", b"male": "M", b"U": None}),
    "Laterality": ("laterality", {b" right ": "R", b"U": None, b"B": None}),
    "PatientOrientation": ("orientation", {b"L\\F ": "L\\F", b"L": None, b"JANE\\F": None}),
    "BodyPartExamined": ("body_part", {b"PORT CHEST": "CHEST", b"Jane Doe": None}),
    "Modality": ("modality", {b"dx ": "DX", b"JANE": None}),
    "StudyDate": ("date", {b"2024.02.29": "2024-02-29", b"20240230": None, b"Jane": None}),
    "AcquisitionDateTime": ("date", {b"20240229101112.5": "2024-02-29"}),
    "Manufacturer": (
        "manufacturer",
        {
            b"Jane Doe": None,
            b"FUJI PHOTO FILM Co., ltd. 4711 Doe": "FUJI PHOTO FILM Co ltd",
            b"GE\nHealthcare": "GE Healthcare",
        },
    ),
    "SeriesInstanceUID": ("series", {b"1.2\0": "1.2", b"1.2.Jane": None}),
    "PatientID": ("patient", {b"4711\0": "7e4b255c2db22401", b" 4711 ": "7e4b255c2db22401", b"  ": None}),
}


@pytest.mark.parametrize("keyword", _VALUES)
def test_values_of_any_form(keyword: str) -> None:
    name, values = _VALUES[keyword]
    for value, expected in values.items():
        for vr in (None, "UN", "US"):
            assert _read(_raw(vr, **{keyword: value})).get(name) == expected, (value, vr)
    assert name not in _read(_raw("SQ", **{keyword: b"PA"}))


def test_codes() -> None:
    views = {("R-10206",): "AP", ("0", "272479007"): "PA", (): None}
    for codes, view in views.items():
        assert _read(_film(ViewCodeSequence=_coded(*codes))).get("view") == view
        assert _read(_film(ViewPosition="LL", ViewCodeSequence=_coded(*codes)))["view"] == "LL"
    assert _read(_film(AnatomicRegionSequence=_coded("T-D3000")))["body_part"] == "CHEST"


def test_sides_of_frames_and_of_regions() -> None:
    frame, group, region = Dataset(), Dataset(), Dataset()
    frame.FrameLaterality = "R"
    group.FrameAnatomySequence = Sequence([frame])
    assert _read(_film(SharedFunctionalGroupsSequence=Sequence([group])))["laterality"] == "R"
    region.AnatomicRegionModifierSequence = _coded("G-A101")
    assert _read(_film(AnatomicRegionSequence=Sequence([region])))["laterality"] == "L"


@pytest.mark.parametrize(
    ("names", "encoding"),
    [("ISO_IR 192", "utf-8"), ("ISO_IR 100", "latin-1"), ("GB18030", "gb18030"), ("ISO_IR 13", "shift_jis")],
)
def test_one_patient_has_one_hash_in_all_character_sets(names: str, encoding: str) -> None:
    text = {"latin-1": "Müller 1", "utf-8": "Müller 1"}.get(
        encoding, "山田ポソ 1" if encoding != "shift_jis" else "ｱｲｳ 1"
    )
    film = _raw(SpecificCharacterSet=names.encode(), PatientID=text.encode(encoding))
    assert _read(film)["patient"] == keyed_hash(KEY, "patient", text)


@pytest.mark.parametrize("names", [b"Jane Doe", b"\\", b"ISO 2022 IR 87\\Jane", b"zlib", b"\xff"])
def test_unknown_character_sets_keep_the_patient(names: bytes) -> None:
    film = _raw(SpecificCharacterSet=names, PatientID=b"4711")
    assert _read(film)["patient"] == "7e4b255c2db22401"


@given(
    st.dictionaries(
        st.sampled_from(
            [*_VALUES, *("SpecificCharacterSet", "PatientAge", "SOPInstanceUID", "AccessionNumber")]
        ),
        st.binary(max_size=40),
    ),
    st.sampled_from([None, "UN", "US", "OB", "PN", "DS"]),
)
def test_any_bytes_give_metadata_that_a_manifest_may_hold(values: dict[str, bytes], vr: str | None) -> None:
    metadata = _read(_raw(vr, **values), keep_dates=False)
    format_line(Record(id="1", image="1.dcm", split="train", metadata=metadata))


def test_a_file_gives_what_its_attributes_in_memory_give() -> None:
    film = _film(
        SpecificCharacterSet="ISO_IR 192",
        PatientID="Müller",
        PatientAge="040Y",
        StudyDate="20240101",
        PatientOrientation=["L", "F"],
        ViewCodeSequence=_coded("R-10206"),
    )
    film.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    film.file_meta = FileMetaDataset()
    film.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = io.BytesIO()
    film.save_as(file, enforce_file_format=True)
    file.seek(0)
    assert _read(dcmread(file)) == _read(film)


@pytest.mark.parametrize("vr", ["RH", "LO", "SH"])
@pytest.mark.parametrize("keyword", ["AccessionNumber", "SpecificCharacterSet"])
def test_a_value_that_was_never_read_is_left_out(keyword: str, vr: str) -> None:
    film = _raw(Manufacturer=b"Canon ")
    tag = Tag(keyword)
    film[tag] = RawDataElement(tag, vr, 4, None, 0, False, True)
    assert _read(film) == {"sop": "1.2.3", "study": "1.2.1", "manufacturer": "Canon"}
