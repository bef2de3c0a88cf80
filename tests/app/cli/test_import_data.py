"""`recoquest import`: what a new user sees, and how it ends."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.app.commands import outcome
from tests.image_files import write_photo
from tests.training.importing.trees import records_of

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `recoquest import folder photos` with options; gives the exit code, and all that is said."""
    monkeypatch.chdir(tmp_path)
    for number in range(1, 4):
        path = tmp_path / "photos" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        write_photo(path)
    return partial(outcome, "import", "folder", "photos")


def test_a_folder_says_what_it_found_and_what_it_left_out(command: Command, tmp_path: Path) -> None:
    (tmp_path / "photos" / "4.jp2").touch()
    (tmp_path / "photos" / "@eaDir").mkdir()
    write_photo(tmp_path / "photos" / "@eaDir" / "1.jpg")
    code, said = command()
    assert code == 0
    assert said.splitlines()[-4:] == [
        "Found 5 files in photos: 3 taken, 0 refused, 2 left out.",
        "Left out: .jp2 files, which cannot be read (convert them to JPEG or PNG): 1; "
        "files in folders named '@eaDir': 1.",
        "0 texts, for 0 of 3 images.",
        "Wrote 3 records to photos/manifest.jsonl.",
    ]


def test_a_table_says_what_was_refused_and_where(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        'image,caption,label\n1.jpg,a dog,dog\n2.jpg,"a cat\n3.jpg,a lake, blue,lake\n'
    )
    code, said = command("--table", "t.csv", "--max-rejected", "0.7")
    assert code == 0
    for sentence in (
        "Line 3: a quote opens that does not close before line 4, another row.",
        "Line 4: it has 4 fields where the header has 3; put a value with ',' in it into quotes.",
        "Took columns 'caption' for text and 'label' for labels.",
        "Found 3 rows in t.csv: 1 taken, 2 refused, 0 left out.",
        "Left out: images without a row that can be used: 2.",
        "1 label; the most frequent is 'dog', of 1 of 1 image.",
        "Wrote 1 record to photos/manifest.jsonl.",
    ):
        assert sentence in said.splitlines()


def test_texts_that_stand_for_not_known(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,text\n1.jpg,nan\n2.jpg,a dog\n")
    code, said = command("--table", "t.csv")
    assert code == 0
    assert "1 text is 'nan' (line 2): left out as not known; `--keep-unknown-texts` keeps such texts." in said
    assert "1 text, for 1 of 2 images." in said
    code, said = command("--table", "t.csv", "--keep-unknown-texts")
    assert "2 texts, for 2 of 2 images." in said


def test_damaged_images_stop_nothing_and_are_an_error_only_if_asked(command: Command, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "4.jpg").write_bytes(b"")
    (photos / "5.jpg").write_text("<html>404</html>")
    (photos / "6.jpg").write_bytes((photos / "1.jpg").read_bytes()[:300])
    code, said = command()
    assert code == 0
    assert "Found 6 files in photos: 3 taken, 3 refused, 0 left out." in said
    assert "'4.jpg' is an empty file" in said
    code, said = command("--strict")
    assert code == 1
    assert "Wrote 3 records" in said
    assert "3 lines and images could not be used" in said
    for path in photos.glob("[123].jpg"):
        path.unlink()
    before = (photos / "manifest.jsonl").read_bytes()
    code, said = command()
    assert code == 1
    assert (photos / "manifest.jsonl").read_bytes() == before


def test_many_refused_lines_are_counted(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption\n1.jpg,a\n" + "".join(f"x{n}.jpg,b\n" for n in range(70)))
    code, said = command("--table", "t.csv")
    assert code == 0
    assert "Line 52: there is no image 'x49.jpg'" in said
    assert "x50.jpg" not in said
    assert "And 20 more." in said


def test_damaged_images_are_refused_by_what_is_decoded(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.importing.listing.MOST_DECODED", 1)
    whole = (tmp_path / "photos" / "1.jpg").read_bytes()
    (tmp_path / "photos" / "3.jpg").write_bytes(whole[:-30])
    code, said = command("--max-rejected", "0.5")
    assert code == 0
    assert "Found 3 files in photos: 0 taken, 2 listed, 1 refused, 0 left out." in said
    assert "File 3: '3.jpg': The JPEG image is damaged" in said
    code, said = command("--max-rejected", "0.5", "--check")
    assert "Found 3 files in photos: 2 taken, 1 refused, 0 left out." in said
    monkeypatch.setenv("RECOQUEST_ACCEPT_TRUNCATED_IMAGES", "true")
    code, said = command("--check")
    assert (code, "3 taken, 0 refused" in said) == (0, True)


def test_a_table_in_another_encoding_is_told_its_option_and_read_with_it(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes("Bildname;Befund\n1.jpg;Das Herz ist groß.\n".encode("cp1252"))
    code, said = command("--table", "t.csv")
    assert (code, said.endswith("give `--encoding windows-1252`.")) == (1, True)
    code, said = command("--table", "t.csv", "--encoding", "windows-1252")
    assert (code, "1 text, for 1 of 1 image." in said) == (0, True)
    (record,) = records_of(tmp_path / "photos").values()
    assert record.texts == ("Das Herz ist groß.",)
