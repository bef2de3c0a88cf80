"""Folders as people have them: a table of a German Excel, a NAS, Kaggle's Flickr, a copy of MIMIC-CXR."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from app.jobs.kinds import command_line
from tests.training.importing.trees import records_of, touch, write
from training.common.errors import DataError

Command = Callable[..., list[str]]

TABLE = (
    "Bildname;Befund;Beurteilung;Aufnahmedatum;Größe;Anteil;Schlagwörter\r\n"
    "1.jpg;Das Herz ist groß.;Kardiomegalie;1.4.21;65,5 mm;1%;Herz|groß\r\n"
    "2.jpg;Kein Erguss.;k. A.;03.03.2021;70 mm;12,5 %;?\r\n"
    "3.jpg;unauffällig;;11. März 2021;1.234,5 mm;5 %;Lunge\r\n"
    "4.jpg;-;;12.3.21;;;unbekannt\r\n"
)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `recoquest import` as a job would; gives all that is said, line by line, after a good end."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> list[str]:
        result = CliRunner().invoke(build(), command_line("import", arguments, tmp_path, 1))
        assert result.exception is None or isinstance(result.exception, DataError)
        assert result.exit_code == code
        return str(result.exception).splitlines() if code else result.stdout.splitlines()

    return run


@pytest.mark.parametrize(("encoding", "options"), [("utf-8-sig", ()), ("cp1252", ("windows-1252",))])
def test_a_table_of_a_german_excel(
    command: Command, tmp_path: Path, encoding: str, options: tuple[str, ...]
) -> None:
    touch(tmp_path / "photos", *(f"{number}.jpg" for number in range(1, 5)))
    (tmp_path / "t.csv").write_bytes(TABLE.encode(encoding))
    given = [part for name in options for part in ("--encoding", name)]
    if given:
        (said,) = command("folder", "photos", "--table", "t.csv", code=1)
        assert "reads as Windows-1252" in said
        assert said.endswith("give `--encoding windows-1252`.")
    said = "\n".join(command("folder", "photos", "--table", "t.csv", *given))
    for sentence in (
        "Took columns 'Bildname' for image, 'Befund' for findings, 'Beurteilung' for impression and "
        "'Schlagwörter' for labels.",
        "1 text is 'k. A.' (line 3): left out as not known; `--keep-unknown-texts` keeps such texts.",
        "Schlagwörter: 2 values stand for 'not known', not stored: '?' on line 3, 'unbekannt' on line 5.",
        "Found 4 rows in t.csv: 4 taken, 0 refused, 0 left out.",
        "4 texts, for 3 of 4 images.",
    ):
        assert sentence in said
    records = records_of(tmp_path / "photos").values()
    assert [record.texts for record in records] == [
        ("Das Herz ist groß.", "Kardiomegalie"),
        ("Kein Erguss.",),
        ("unauffällig",),
        (),
    ]
    assert [dict(record.metadata) for record in records] == [
        {"Aufnahmedatum": "2021-04-01", "Größe": 65.5, "Anteil": 1},
        {"Aufnahmedatum": "2021-03-03", "Größe": 70, "Anteil": 12.5},
        {"Aufnahmedatum": "2021-03-11", "Größe": 1234.5, "Anteil": 5},
        {"Aufnahmedatum": "2021-03-12"},
    ]


def test_a_folder_of_a_nas(command: Command, tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Größe.jpg") for form in ("NFC", "NFD"))
    touch(
        tmp_path / "nas", "a.jpg", "sub/b.JPG", "@eaDir/a.jpg/SYNO.jpg", "sub/@eaDir/b.JPG/x.jpg", "._a.jpg"
    )
    touch(tmp_path / "nas", decomposed, "Thumbs.db", ".DS_Store", "1.mov", "2.mov", "y.xmp")
    assert command("folder", "nas")[-4:] == [
        "Found 11 files in nas: 3 taken, 0 refused, 8 left out.",
        "Left out: .mov files, which are no images that can be read: 2; .xmp files, which are no images that "
        "can be read: 1; hidden files and files of systems: 3; files in folders named '@eaDir': 2.",
        "0 texts, for 0 of 3 images.",
        "Wrote 3 records to nas/manifest.jsonl.",
    ]
    write(tmp_path, "t.csv", f"Foto;Beschreibung\n{composed};Ein Maß\nC:\\NAS\\sub\\b.JPG;Ein Boot\n")
    said = command("folder", "nas", "--table", "t.csv")
    assert said[1] == "Looked for images whose paths begin with 'C:/NAS/' in nas, by the rest of them."
    assert {record.image: record.texts for record in records_of(tmp_path / "nas").values()} == {
        decomposed: ("Ein Maß",),
        "sub/b.JPG": ("Ein Boot",),
    }


@pytest.mark.parametrize(
    ("table", "inside", "content"),
    [
        ("captions.txt", "Images", "image,caption\n1.jpg,First .\n1.jpg,Second .\n2.jpg,A child .\n"),
        (
            "flickr30k_images/results.csv",
            "flickr30k_images/flickr30k_images",
            "image_name| comment_number| comment\n1.jpg| 1| Second .\n"
            "1.jpg| 0| First .\n2.jpg| 0| A child .\n",
        ),
    ],
)
def test_downloads_of_kaggle(command: Command, tmp_path: Path, table: str, inside: str, content: str) -> None:
    touch(tmp_path / "archive", f"{inside}/1.jpg", f"{inside}/2.jpg")
    write(tmp_path, f"archive/{table}", content)
    way_out = f"import folder archive --table archive/{table}"
    assert command("folder", "archive")[0] == (
        f"{table!r} is a table of images: `recoquest {way_out}` takes what it says of them."
    )
    said = command(*way_out.split()[1:])
    assert f"Looked for the images in the folder {inside!r} as well." in said
    assert f"Found 3 rows in archive/{table}: 3 taken, 0 refused, 0 left out." in said
    assert {record.image: record.texts for record in records_of(tmp_path / "archive").values()} == {
        f"{inside}/1.jpg": ("First .", "Second ."),
        f"{inside}/2.jpg": ("A child .",),
    }


def test_a_tree_like_mimic(command: Command, tmp_path: Path) -> None:
    for study in ("s50000001", "s50000002"):
        touch(tmp_path / "m", f"files/p10/p10000001/{study}/a.jpg")
        write(
            tmp_path, f"m/files/p10/p10000001/{study}.txt", "FINDINGS: The heart is large.\nIMPRESSION: ___\n"
        )
    said = command("folder", "m")
    assert said[0] == (
        "'files/p10/p10000001/s50000001.txt' is a file of the layout mimic-cxr: "
        "`recoquest import mimic-cxr m` reads it."
    )
    assert command("mimic-cxr", "m")[-4:] == [
        "Found 2 images in m: 2 taken, 0 refused, 0 left out.",
        "Found 2 reports in m/files: 2 taken, 0 refused, 0 left out.",
        "2 texts, for 2 of 2 images.",
        "Wrote 2 records to m/manifest.jsonl.",
    ]
