"""Kinds of DICOM objects: films, what a person has to look at, and what is left out."""

from typing import Final

import pytest
from pydicom import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from tests.dicom_grey_forms import GreyForm
from training.clinical.dicom.objects import kind_of, read_object
from training.common.errors import ImageError

CR: Final = "1.2.840.10008.5.1.4.1.1.1"
DX: Final = "1.2.840.10008.5.1.4.1.1.1.1"
CT: Final = "1.2.840.10008.5.1.4.1.1.2"
SC: Final = "1.2.840.10008.5.1.4.1.1.7"


def _object(sop_class: str, modality: str = "DX", **attributes: object) -> Dataset:
    dataset = Dataset()
    dataset.SOPClassUID = sop_class
    dataset.Modality = modality
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    return dataset


@pytest.mark.parametrize(
    ("dataset", "left_out"),
    [
        (_object(CR, "CR"), ""),
        (_object(DX), ""),
        (_object(SC, "CR"), ""),
        (_object(DX + ".1"), "films for processing"),
        (_object(CT, "CT"), "objects of CT Image Storage: --modality CT takes them"),
        (_object("1.2.840.10008.5.1.4.1.1.88.11", "SR"), "objects of Basic Text SR Storage"),
        (_object("1.2.840.10008.5.1.4.1.1.104.1", "DOC"), "objects of Encapsulated PDF Storage"),
        (_object("1.2.840.10008.5.1.4.1.1.11.1", "PR"), "objects of Grayscale Softcopy"),
        (_object("1.2.840.10008.5.1.4.1.1.88.59", "KO"), "objects of Key Object Selection"),
        (_object(SC, "CT"), "secondary captures of CT"),
        (_object("9.9.9", "JANE"), "objects of an unknown SOP class"),
        (_object("9.Jane"), "objects of an unknown SOP class: --modality DX"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_objects_are_named(dataset: Dataset, left_out: str) -> None:
    named = kind_of(dataset).left_out
    assert named.startswith(left_out) and bool(named) == bool(left_out)
    assert "ane" not in named


def test_another_modality_may_be_taken() -> None:
    assert kind_of(_object(CT, "CT"), {"CT"}).left_out == ""
    assert kind_of(_object(SC, "CT"), {"CT"}).quarantined == "secondary capture"


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (_object(DX), ""),
        (_object(DX, BurnedInAnnotation="NO", ImageType=["DERIVED", "PRIMARY", "POST_PROCESSED"]), ""),
        (_object(DX, BurnedInAnnotation="YES"), "BurnedInAnnotation is YES"),
        (_object(DX, BurnedInAnnotation="yes"), "BurnedInAnnotation is YES"),
        (_object(SC, "DX"), "secondary capture"),
        (_object(SC + ".2", "CR"), "secondary capture"),
        (_object(DX, ConversionType="DF"), "ConversionType says that it was captured or digitized"),
        (_object(DX, "OT"), "modality OT"),
        (_object(DX, ImageType=["DERIVED", "SECONDARY"]), "ImageType is SECONDARY"),
        (
            _object(DX, ImageType=["DERIVED", "PRIMARY", "SCREEN SAVE"]),
            "ImageType says that it is a screen save",
        ),
    ],
)
def test_what_may_show_text_is_quarantined(dataset: Dataset, reason: str) -> None:
    assert kind_of(dataset).quarantined == reason


@pytest.mark.parametrize("cut", [0, 4, 132, 140, 300, 500])
def test_cut_files_are_refused_or_read(cut: int) -> None:
    content = GreyForm().make()
    try:
        read_object(content[:cut], 1 << 20)
    except ImageError as error:
        assert str(error).startswith("The DICOM file is damaged" if cut > 4 else "The file is not DICOM")


@pytest.mark.parametrize("cut", [20, 200])
def test_a_deflated_file_that_is_cut_is_damaged(cut: int) -> None:
    content = GreyForm(syntax=DeflatedExplicitVRLittleEndian).make()
    with pytest.raises(ImageError, match="The DICOM file is damaged"):
        read_object(content[:-cut], 1 << 20)


def test_the_header_of_a_file_is_read_without_its_pixels() -> None:
    dataset = read_object(GreyForm().make(), 1 << 20)
    assert "PixelData" not in dataset and "SOPInstanceUID" in dataset
