"""Found = taken + refused + left out, for random tables in every dialect and encoding."""

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.image_files import write_photo
from training.common.errors import DataError
from training.common.manifest import MANIFEST_NAME, read_manifest
from training.common.values import is_not_known, is_without_words
from training.importing.report import ImportReport
from training.importing.run import import_data_set

NAMES = ("1.jpg", "2.jpg", "sub/3.png", "é.jpg")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "windows-1252")
VALUES = st.one_of(
    st.text(alphabet='ab é,;|\t"\n5.', max_size=12),
    st.sampled_from(
        [
            *("nan", "None", "5", "1,5", "058Y", "007", "a dog", "dog;cat", '"', '""', "1.jpg", "\ufeff"),
            *(
                "k. A.",
                "unbekannt",
                "?",
                "___",
                "...",
                "Normal.",
                "1.4.21",
                "11. M\xe4rz 2021",
                "2021-03-11T10:00Z",
            ),
            *("12 mm", "3 cm", "5%", "1.234", "March 11, 2021"),
        ]
    ),
)
IMAGES = st.sampled_from([*NAMES, *NAMES, *NAMES, "./1.jpg", "sub\\3.png", "gone.jpg", "", "a.heic", "nan"])
MOVED = st.sampled_from(
    ["C:\\x\\1.jpg", "C:\\x\\sub\\3.png", "/home/y/2.jpg", "file:///z/%C3%A9.jpg", "//", "a:"]
)
HEADER = st.permutations(["image", "text", "labels", "age", "group"])
SYNONYMS = {
    "image": st.sampled_from(["image", "Bildname", "Foto", "Nom du fichier", "archivo", "immagine"]),
    "text": st.sampled_from(["text", "Beschreibung", "caption_1", "prompt", "alt", "Titre", "didascalia"]),
    "labels": st.sampled_from(["labels", "Schlagw\xf6rter", "mots-cl\xe9s", "tags"]),
    "age": st.sampled_from(["age", "Datum", "size", "comment_number", "findings", "Beurteilung"]),
    "group": st.sampled_from(["group", "Patienten-ID", "Befund", "caption_2", "paciente"]),
}


@pytest.fixture(scope="module")
def photos() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for name in (*NAMES, "a.heic", "@eaDir/x.jpg", "notes.txt"):
            path = Path(folder) / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_photo(path)
        yield Path(folder) / "photos"


def import_text(photos: Path, text: str, encoding: str) -> ImportReport:
    table = photos.parent / "t.csv"
    table.write_bytes(text.encode(encoding))
    marked = encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32")
    options: dict[str, Any] = {"encoding": None if marked else encoding, "max_rejected": 1.0}
    try:
        # Decoding takes another process each time, and other tests look at it.
        return import_data_set("folder", photos, table=table, most_decoded=0, **options)
    except DataError as error:
        assert str(error).endswith("can be used, so no manifest is written.")
        reject()


def check_accounts(report: ImportReport, photos: Path, rows: int) -> None:
    table, files = report.tallies
    assert table.found == rows
    assert table.found == table.listed + table.refused + sum(table.left_out.values())
    assert files.found == len(NAMES) + 3 == files.listed + sum(files.left_out.values())
    assert files.listed == report.records
    assert "\ufffd" not in (photos / MANIFEST_NAME).read_text(encoding="utf-8")
    assert all(item.line >= 2 for item in report.rejections.items)


@pytest.mark.slow
@given(
    header=HEADER,
    rows=st.lists(st.tuples(IMAGES, VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=8),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(ENCODINGS),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_rows_that_a_program_wrote_are_all_accounted_for(
    photos: Path, header: list[str], rows: list[tuple[str, ...]], delimiter: str, encoding: str, end: str
) -> None:
    if encoding == "windows-1252":
        rows = [tuple(value.replace("\ufeff", "") for value in row) for row in rows]
    place = header.index("image")
    written = [[*row[1 : place + 1], row[0], *row[place + 1 :]] for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(
        [header, *written]
    )
    report = import_text(photos, file.getvalue(), encoding)
    check_accounts(report, photos, len(rows))
    texts = [" ".join(row[header.index("text")].split()) for row in written]
    records = read_manifest(photos).records if report.records else ()
    kept = [text for record in records for text in record.texts]
    assert all(text in texts and not is_not_known(text) for text in kept)
    if not report.rejections:
        assert sorted(kept) == sorted(
            text for text in texts if not is_not_known(text) and not is_without_words(text)
        )


@pytest.mark.slow
@given(
    header=HEADER,
    named=st.fixed_dictionaries(SYNONYMS),
    rows=st.lists(st.tuples(IMAGES | MOVED, VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=8),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(ENCODINGS[:-1]),
)
def test_rows_under_other_names_and_with_foreign_paths_are_all_accounted_for(
    photos: Path,
    header: list[str],
    named: dict[str, str],
    rows: list[tuple[str, ...]],
    delimiter: str,
    encoding: str,
) -> None:
    place = header.index("image")
    written = [[*row[1 : place + 1], row[0], *row[place + 1 :]] for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(
        [[named[role] for role in header], *written]
    )
    report = import_text(photos, file.getvalue(), encoding)
    check_accounts(report, photos, len(rows))
    assert all(note.endswith(".") and "\n" not in note for note in report.notes)
    records = read_manifest(photos).records if report.records else ()
    assert all(not is_without_words(text) for record in records for text in record.texts)
    assert {record.image for record in records} <= {*NAMES, "a.heic"}
    assert not any(is_not_known(label) for record in records for label in record.labels)


@pytest.mark.slow
@given(
    beside=st.dictionaries(
        st.sampled_from(["1.txt", "2.TXT", "1.jpg.txt", "sub/3.txt", "e\u0301.txt", "gone.txt", "a.caption"]),
        st.one_of(st.text(alphabet='ab \xe9.\n_\u200b,A"', max_size=30), st.just("FINDINGS: Clear.")),
        max_size=5,
    ),
    encoding=st.sampled_from(["utf-8", "utf-16", "windows-1252"]),
)
def test_texts_beside_images_are_all_accounted_for(beside: dict[str, str], encoding: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in ("1.jpg", "2.jpg", "2.png", "sub/3.png", "\xe9.jpg", "@eaDir/1.jpg"):
            (folder / name).parent.mkdir(exist_ok=True)
            write_photo(folder / name)
        for name, text in beside.items():
            (folder / name).write_bytes(text.encode(encoding, "replace"))
        report = import_data_set("folder", folder, max_rejected=1.0, most_decoded=0)
        (files,) = report.tallies
        assert files.found == 6 + len(beside)
        assert files.found == files.listed + files.refused + sum(files.left_out.values())
        assert report.records <= 5
        texts = [text for record in read_manifest(folder).records for text in record.texts]
        assert not any(map(is_without_words, texts))


@pytest.mark.slow
@given(
    lines=st.lists(st.text(alphabet="ab é,;|\t5.", max_size=20), max_size=12),
    header=st.sampled_from(["image,text", "image;text;age", "text\timage", "image|text", "image"]),
    encoding=st.sampled_from(ENCODINGS),
)
def test_lines_without_quotes_are_rows_each(
    photos: Path, lines: list[str], header: str, encoding: str
) -> None:
    lines = ["1.jpg", *lines]
    report = import_text(photos, "\n".join([header, *lines]) + "\n", encoding)
    check_accounts(report, photos, sum(1 for line in lines if line.strip(" ")))


@pytest.mark.slow
@given(
    lines=st.lists(st.text(alphabet='ab",', max_size=9), max_size=12),
    names=st.lists(IMAGES, min_size=12, max_size=12),
)
def test_lines_with_quotes_anywhere_lose_no_row(photos: Path, lines: list[str], names: list[str]) -> None:
    written = [f"{name},{line}" for name, line in zip(names, lines, strict=False)]
    report = import_text(photos, "\n".join(["image,text", "1.jpg,a", *written]) + "\n", "utf-8")
    # A field may go over several lines of which none is a row with an image.
    rows = report.tallies[0].found
    assert rows <= len(written) + 1
    check_accounts(report, photos, rows)
    images = sum(name not in ("", "nan") for name in names[: len(written)])
    refused = len(report.rejections) + report.tallies[0].listed + sum(report.tallies[0].left_out.values())
    assert refused >= images + 1
