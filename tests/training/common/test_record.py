"""One line of a manifest."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.common.record import LineError, Record, format_line, parse_line

OUTSIDE = "the image '{}' is not a path with '/' inside the manifest's folder"
GOOD: dict[str, Any] = {"id": "a", "image": "images/a.jpg", "split": "train"}


def line_with(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


def test_the_least_and_the_most_that_a_line_holds() -> None:
    assert parse_line(line_with(), 3) == Record("a", "images/a.jpg", "train")
    assert parse_line(line_with(), 3).line == 3
    full = line_with(
        texts=["One.", "Two."],
        group="g",
        labels=["Edema"],
        report="One. Two.",
        metadata={"view": "PA", "age": 61, "dose": 0.5, "portable": True, "tags": ["x", 1], "gone": None},
        audio="sounds/a.wav",
        not_texts=["No effusion."],
        sha256="0f" * 32,
    )
    assert parse_line(full, 1) == Record(
        "a",
        "images/a.jpg",
        "train",
        ("One.", "Two."),
        "g",
        ("Edema",),
        "One. Two.",
        {"view": "PA", "age": 61, "dose": 0.5, "portable": True, "tags": ("x", 1)},
        "sounds/a.wav",
        ("No effusion.",),
        "0f" * 32,
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "it is not JSON: expecting property name enclosed in double quotes (column 2)"),
        (b"[1]", "it is not a JSON object"),
        (b'{"id": "\xff"}', "it is not UTF-8 text (byte 9)"),
        (b'{"id": NaN}', "NaN is not a JSON number"),
        (b'{"id": "a", "id": "b"}', "the key 'id' is given twice"),
        (b"[" * 100_000, "it is nested too deeply or has a number that is too long"),
        (b'{"id": ' + b"1" * 5000 + b"}", "it is nested too deeply or has a number that is too long"),
        (b'{"image": "a", "split": "test"}', "'id' is missing"),
        (line_with(image=None), "'image' is missing"),
        (
            line_with(caption="x"),
            "unknown key 'caption'; "
            "known are id, image, audio, split, texts, not_texts, group, labels, report, metadata, sha256",
        ),
        (line_with(id=3), "'id' must be a string"),
        (line_with(id=" "), "'id' is empty"),
        (line_with(id="a/b"), "the id 'a/b' has '/', control characters or outer spaces"),
        (line_with(id=".."), "the id '..' is that of a folder"),
        (line_with(id="a\nb"), "the id 'a\\nb' has '/', control characters or outer spaces"),
        (line_with(id="x" * 256), f"the id '{'x' * 79}... has more than 255 characters"),
        (line_with(image="/etc/passwd"), OUTSIDE.format("/etc/passwd")),
        (line_with(image="a/../../b"), OUTSIDE.format("a/../../b")),
        (line_with(image="a\\b"), OUTSIDE.format("a\\\\b")),
        (line_with(image="a\0b"), "'image' holds a null character"),
        (line_with(audio="../a.wav"), OUTSIDE.format("../a.wav").replace("image", "audio")),
        (line_with(audio="/dev/zero"), OUTSIDE.format("/dev/zero").replace("image", "audio")),
        (line_with(audio=3), "'audio' must be a string"),
        (line_with(audio=""), "'audio' is empty"),
        (line_with(split="dev"), "the split 'dev' is not one of train, val, test"),
        (line_with(split=["train"]), "the split ['train'] is not one of train, val, test"),
        (line_with(texts="one"), "'texts' must be a list of strings"),
        (line_with(texts=["one", ""]), "'texts[1]' is empty"),
        (line_with(texts=["one", 2]), "'texts[1]' must be a string"),
        (line_with(texts=["\ud800"]), "'texts[0]' holds half of a surrogate pair"),
        (line_with(labels=[None]), "'labels[0]' must be a string"),
        (line_with(sha256="0F" * 32), "'sha256' is not 64 hexadecimal digits in lower case"),
        (line_with(sha256="0f"), "'sha256' is not 64 hexadecimal digits in lower case"),
        (line_with(group=7), "'group' must be a string"),
        (line_with(group="é" * 1001), "'group' has 2,002 bytes in UTF-8; the limit is 2,000"),
        (line_with(labels=["x", "x" * 2001]), "'labels[1]' has 2,001 bytes in UTF-8; the limit is 2,000"),
        (line_with(metadata={"x" * 501: 1}), "'metadata key' has 501 bytes in UTF-8; the limit is 500"),
        (line_with(metadata=[1]), "'metadata' must be an object"),
        (line_with(metadata={"split": "x"}), "metadata cannot use the name 'split', a key of the record"),
        (line_with(metadata={"": "x"}), "'metadata key' is empty"),
        (line_with(metadata={"n": 2**63}), "'metadata.n' does not fit into 64 bits"),
        (
            line_with(metadata={"n": {"m": 1}}),
            "'metadata.n' must be a string, a number, true, false, or a list of these",
        ),
        (
            b'{"id":"a","image":"a","split":"val","metadata":{"n":1e999}}',
            "'metadata.n' is not a finite number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(line, 1)
    assert str(caught.value) == reason


def test_what_a_database_looks_for_may_be_long_and_what_is_shown_longer() -> None:
    long = {"group": "é" * 1000, "labels": ["x" * 2000], "metadata": {"n" * 500: "x" * 100_000}}
    record = parse_line(line_with(id="\U00020000" * 255, report="x" * 3_000_000, **long), 1)
    assert parse_line(format_line(record), 1) == record


def test_a_byte_order_mark_is_passed_over_on_the_first_line_only() -> None:
    assert parse_line(b"\xef\xbb\xbf" + line_with(), 1).id == "a"
    with pytest.raises(LineError, match="not JSON"):
        parse_line(b"\xef\xbb\xbf" + line_with(), 2)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_reason(line: bytes) -> None:
    with pytest.raises(LineError):
        parse_line(line, 1)


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip)
names = st.from_regex(r"[a-zA-Z0-9_é一.\-]{1,20}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
scalars = (
    words
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
)
records = st.builds(
    Record,
    id=names,
    image=st.lists(names, min_size=1, max_size=3).map("/".join),
    split=st.sampled_from(["train", "val", "test"]),
    texts=st.lists(words, max_size=3).map(tuple),
    group=st.none() | words,
    labels=st.lists(words, max_size=2).map(tuple),
    report=st.none() | words,
    metadata=st.dictionaries(
        words.filter(lambda key: key not in ("id", "split", "group", "labels")),
        scalars | st.lists(scalars, max_size=2).map(tuple),
        max_size=3,
    ),
    audio=st.none() | st.lists(names, min_size=1, max_size=2).map("/".join),
)


@given(records)
def test_what_is_written_is_read_again(record: Record) -> None:
    line = format_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_line(line, 1) == record
