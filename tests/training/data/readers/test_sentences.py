"""The splitting of reports into sentences."""

import pytest

from training.data.readers.sentences import report_sentences, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", ()),
        ("The heart is\n normal.  No effusion.", ("The heart is normal.", "No effusion.")),
        ("Nodule of 3.5 cm. Stable.", ("Nodule of 3.5 cm.",)),
        ("Cardiomegaly. Normal.", ("Cardiomegaly.",)),
        ("1. Edema is present. 2. Small effusion.", ("Edema is present.", "Small effusion.")),
        ("Seen by Dr. Who at 3 p.m. No change seen.", ("Seen by Dr. Who at 3 p.m. No change seen.",)),
        (
            "Edema vs. Pneumonia. Is it worse? Yes it is!",
            ("Edema vs. Pneumonia.", "Is it worse?", "Yes it is!"),
        ),
        ("Compared to ___. ___ is clear now.", ("Compared to ___.", "___ is clear now.")),
        ("- Right effusion. - Left nodule.", ("Right effusion.", "Left nodule.")),
        ("no full stop at all", ("no full stop at all",)),
        ("___. 12. OK.", ()),
    ],
)
def test_sentences(text: str, sentences: tuple[str, ...]) -> None:
    assert split_sentences(text) == sentences


def test_sections_are_joined_without_repeats() -> None:
    assert report_sentences(["Clear lungs. No effusion.", "No effusion. Stable heart."]) == (
        "Clear lungs.",
        "No effusion.",
        "Stable heart.",
    )
