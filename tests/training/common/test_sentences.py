import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.common.sentences import sentence_starts


def split(text: str) -> list[str]:
    starts = sentence_starts(text)
    return [text[a:b].strip() for a, b in pairwise([*starts, len(text)])]


@pytest.mark.parametrize(
    "sentences",
    [
        ["The lungs are clear.", "No effusion!", "Is the heart enlarged?", "Yes."],
        ["Dr. Smith saw a nodule of 2.5 cm.", "It is new."],
        ["Compared with no. 3 (e.g. fig. 2), approx. 3 cm. wide, vs. 2 cm. before."],
        ["Pneumothorax: no.", "Heart: normal."],
        ["1. No acute process.", "2. Stable nodule."],
        ["Seen by J. P. Miller of the U.S. Army.", "Unchanged since 2019.", "No fracture."],
        ['"Is it a cat?"', "It is (a dog.)", "So what."],
        ["the lungs are clear.", "there is no effusion."],
        ["Hmm... this goes on.", "This does not..."],
        ["Wait...", "What?!", "12 dogs run."],
        ["FINDINGS", "The heart is normal\nin size."],
        ["\u00c9tat stable.", "\u00c0 revoir."],
        ["IMPRESSION: 1. No acute process.", "2. Stable."],
        ["No mass. .", "No nodule ! ?"],
        ["x-ray"],
        ["\u732b\u3067\u3059\u3002", "\u72ac\u3067\u3059\u3002"],
        [""],
    ],
)
def test_splits_between_sentences_only(sentences: list[str]) -> None:
    # East Asian marks need no white space.
    joined = "\n\n" if sentences[0] == "FINDINGS" else "" if "\u3002" in sentences[0] else " "
    assert split(joined.join(sentences)) == sentences


@given(st.text(alphabet="aA1 .!?\n\"')\u3002", max_size=40) | st.text(max_size=40))
def test_starts_are_a_partition_of_any_text(text: str) -> None:
    starts = sentence_starts(text)
    assert starts[0] == 0
    assert all(a < b for a, b in pairwise(starts))
    assert all(0 < start < len(text) and not text[start].isspace() for start in starts[1:])


@pytest.mark.parametrize("piece", ["Dr. ", ".", "\n", " ", "a(", '."', ". ", "1. ", "\n ", "!?"])
def test_takes_no_more_than_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    begin = time.process_time()
    sentence_starts(text)
    assert time.process_time() - begin < 1.0
