"""Sections joined to one report."""

import pytest

from tests.training.clinical.reports.documents import cases
from training.clinical.reports.current import current_report
from training.clinical.reports.study_report import StudyReport
from training.clinical.text.report_text import make_report, read_report_or_text, without_marks
from training.clinical.text.sections import clinical_sections
from training.common.record import Split
from training.importing.splits import draw_split, split_in


@pytest.mark.parametrize(("text", "expected"), cases("marks"))
def test_marks_of_removed_words(text: str, expected: str) -> None:
    assert without_marks(text) == expected


def test_the_whole_text_keeps_its_marks() -> None:
    report = make_report({"FINDINGS": " Clear since ___. ", "IMPRESSION": ""})
    assert report.text == "FINDINGS: Clear since ___."
    assert report.sentences == ("Clear since.",)
    first = make_report({"IMPRESSION": "Normal heart size. XXXX scarring on the left. XXXX. ___ change."})
    assert first.sentences == ("Normal heart size.", "scarring on the left.")
    assert make_report({"FINDINGS": ""}, "All is well here.").text == "All is well here."
    assert make_report({}).text is None


@pytest.mark.parametrize(
    ("path", "split", "place"),
    [
        ("data/train-00000-of-00004-0a1b", "train", 1),
        ("validation/0001", "val", 0),
        ("photos/Test/dog", "test", 1),
        ("train/train-000012", "train", 1),
        ("dev_3", "val", 0),
        *(
            (path, None, 0)
            for path in ("latest/contest", "cc-val-0001", "train-station-0001", "train/test-0001")
        ),
        *((path, None, 0) for path in ("val-isere-2020", "training camp", "my test/1", "")),
    ],
)
def test_splits_that_whole_components_name(path: str, split: Split | None, place: int) -> None:
    assert split_in(path.split("/")) == (None if split is None else (split, place))


def test_a_drawn_split_is_the_same_again_and_about_a_tenth_each() -> None:
    drawn = [draw_split(str(number)) for number in range(4000)]
    assert drawn == [draw_split(str(number)) for number in range(4000)]
    shares: dict[Split, float] = {"train": 0.8, "val": 0.1, "test": 0.1}
    for name, share in shares.items():
        assert abs(drawn.count(name) / 4000 - share) < 0.03


@pytest.mark.parametrize(
    "title",
    [
        "Thoraxröntgen in 2 Ebenen:",
        "Röntgen Thorax in zwei Ebenen:",
        "Rö-Thorax p.a.:",
        "Rö. Thorax in 2 Eb. (p. a. + seitl.):",
        "Röntgenaufnahme des Thorax im Liegen vom 12.03.2020:",
        "Konventionelle Thoraxübersichtsaufnahme:",
        "CXR PA and lateral:",
        "CHEST X-RAY (2 VIEWS):",
        "XR chest, AP portable:",
    ],
)
@pytest.mark.parametrize("form", ["{}\n{}", "{} {}", "BEFUND:\n{}\n{}", "FINDINGS: {} {}"])
def test_the_name_of_the_examination_before_a_report_is_no_statement(title: str, form: str) -> None:
    text = form.format(title, "Kein Erguss. Herz normal groß.")
    assert read_report_or_text(text).sentences == ("Kein Erguss.", "Herz normal groß.")
    own = StudyReport((), None, None, "final", None, clinical_sections(text))
    current = current_report([own])
    assert current is not None
    assert current.sentences == ("Kein Erguss.", "Herz normal groß.")


@pytest.mark.parametrize(
    "text", ["Chest X-ray.", "Thorax in 2 Ebenen", "Herz: normal.", "Thoraxdrainage: korrekt."]
)
def test_a_text_that_is_a_title_alone_or_begins_with_none_is_kept(text: str) -> None:
    assert make_report({"FINDINGS": text}).sentences == (text,)
