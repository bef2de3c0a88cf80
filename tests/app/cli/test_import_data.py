"""`recoquest import`: what a new user sees, how it ends, and films on their way to a search."""

import csv
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from index.backup import write_backup
from index.ingest import ingest_manifest
from tests.access import AS_ADMIN, OPEN
from tests.app.commands import outcome
from tests.app.conftest import make_bundle
from tests.dicom_films import MARKER, encoded, make_film, uid
from tests.dicom_markers import MARKED, has_marker, jpeg_film, marked_film, places_of_marker
from tests.e2e.work import COMMAND
from tests.image_files import write_photo
from tests.training.importing.trees import records_of
from training.common.manifest import read_manifest
from training.models.encoder import load_encoder

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
    code, message = command()
    assert code == 0
    assert message.splitlines()[-4:] == [
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
    code, message = command("--table", "t.csv", "--max-rejected", "0.7")
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
        assert sentence in message.splitlines()


def test_texts_that_stand_for_not_known(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,text\n1.jpg,nan\n2.jpg,a dog\n")
    code, message = command("--table", "t.csv")
    assert code == 0
    assert (
        "1 text is 'nan' (line 2): left out as not known; `--keep-unknown-texts` keeps such texts." in message
    )
    assert "1 text, for 1 of 2 images." in message
    code, message = command("--table", "t.csv", "--keep-unknown-texts")
    assert "2 texts, for 2 of 2 images." in message


def test_damaged_images_stop_nothing_and_are_an_error_only_if_asked(command: Command, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "4.jpg").write_bytes(b"")
    (photos / "5.jpg").write_text("<html>404</html>")
    (photos / "6.jpg").write_bytes((photos / "1.jpg").read_bytes()[:300])
    code, message = command()
    assert code == 0
    assert "Found 6 files in photos: 3 taken, 3 refused, 0 left out." in message
    assert "'4.jpg' is an empty file" in message
    code, message = command("--strict")
    assert code == 1
    assert "Wrote 3 records" in message
    assert "3 lines and images could not be used" in message
    for path in photos.glob("[123].jpg"):
        path.unlink()
    before = (photos / "manifest.jsonl").read_bytes()
    assert command()[0] == 1
    assert (photos / "manifest.jsonl").read_bytes() == before


def test_many_refused_lines_are_counted(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption\n1.jpg,a\n" + "".join(f"x{n}.jpg,b\n" for n in range(70)))
    code, message = command("--table", "t.csv")
    assert code == 0
    assert "Line 52: there is no image 'x49.jpg'" in message
    assert "x50.jpg" not in message
    assert "And 20 more." in message


def test_damaged_images_are_refused_by_what_is_decoded(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.importing.listing.MOST_DECODED", 1)
    whole = (tmp_path / "photos" / "1.jpg").read_bytes()
    (tmp_path / "photos" / "3.jpg").write_bytes(whole[:-30])
    code, message = command("--max-rejected", "0.5")
    assert code == 0
    assert "Found 3 files in photos: 0 taken, 2 listed, 1 refused, 0 left out." in message
    assert "File 3: '3.jpg': The JPEG image is damaged" in message
    code, message = command("--max-rejected", "0.5", "--check")
    assert "Found 3 files in photos: 2 taken, 1 refused, 0 left out." in message
    monkeypatch.setenv("RECOQUEST_ACCEPT_TRUNCATED_IMAGES", "true")
    code, message = command("--check")
    assert (code, "3 taken, 0 refused" in message) == (0, True)


def test_a_table_in_another_encoding_is_told_its_option_and_read_with_it(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes("Bildname;Befund\n1.jpg;Das Herz ist groß.\n".encode("cp1252"))
    code, message = command("--table", "t.csv")
    assert (code, message.endswith("give `--encoding windows-1252`.")) == (1, True)
    code, message = command("--table", "t.csv", "--encoding", "windows-1252")
    assert (code, "1 text, for 1 of 1 image." in message) == (0, True)
    (record,) = records_of(tmp_path / "photos").values()
    assert record.texts == ("Das Herz ist groß.",)


# Values of a film that a marker takes the place of.
SPOILT: Final = {
    "photometric": "MONOCHROME2 ",
    "class": "1.2.840.10008.5.1.4.1.1.1.1",
    "syntax": "1.2.840.10008.1.2.1",
}
FILMS: Final = "/v1/collections/films"


@pytest.mark.parametrize("content", MARKED, ids=range(len(MARKED)))
def test_markers_are_found_in_every_form(content: bytes) -> None:
    assert has_marker(content)
    assert not has_marker(b"x" * 100)


def _import(base: Path, films: Iterable[bytes], *options: object) -> tuple[int, str]:
    """Import films from a folder whose name marks it into `out`, with a home next to it."""
    source = base / MARKER
    source.mkdir()
    for number, content in enumerate(films, 1):
        (source / str(number)).write_bytes(content)
    return outcome("import", "dicom", source, base / "out", *options, "--home", base / "home")


def _spoilt(film: bytes, name: str) -> bytes:
    value = SPOILT[name]
    return film.replace(value.encode(), f"{MARKER}.".ljust(len(value), "1").encode())


@dataclass
class Searched:
    """A home into which films with markers were imported and indexed, and all that was said meanwhile.

    Attributes:
        base: Folder of what was written.
        said: Output of the import, and answers.
        log: Of the service.
    """

    base: Path
    said: list[bytes]
    log: io.StringIO

    def keep(self, answer: Response) -> Response:
        """Keep an answer."""
        self.said.append(answer.content + repr(answer.headers).encode())
        return answer


@pytest.fixture
def searched(tmp_path: Path, json_log: io.StringIO) -> Iterator[tuple[Searched, TestClient]]:
    source, base = tmp_path / f"{MARKER}_films", tmp_path / "written"
    source.mkdir()
    base.mkdir()
    for number in range(4):
        film = marked_film(number, patient=number // 2, view="PA" if number % 2 else "LL")
        (source / f"{MARKER}^{number}").write_bytes(encoded(film))
    (source / "jpeg").write_bytes(encoded(jpeg_film(7)))
    # Refused and left-out files also have markers.
    (source / f"{MARKER}.cut").write_bytes(encoded(marked_film(20))[:-1000])
    for number, name in enumerate(SPOILT, 21):
        (source / name).write_bytes(_spoilt(encoded(marked_film(number)), name))
    (source / "burned").write_bytes(encoded(marked_film(24, BurnedInAnnotation="YES")))
    (source / f"{MARKER}.txt").write_text(MARKER)
    home, out = base / "home", base / "films"
    code, message = outcome("import", "dicom", source, out, "--home", home, "--max-rejected", "1")
    assert code == 0, message
    assert "5 taken" in message
    settings = Settings(home=home, threads=1, device="cpu", **OPEN)
    engine = open_engine(settings)
    bundle = make_bundle(tmp_path / "bundle", seed=0)
    ingest_manifest(engine, "films", load_encoder(bundle, "cpu"), read_manifest(out), show_progress=False)
    write_backup(engine.home, base / "backup.tar")
    engine.home.catalogue.close()
    searched = Searched(base, [message.encode()], json_log)
    with TestClient(create_app(settings), "http://localhost", headers=AS_ADMIN) as client:
        yield searched, client


def _ids(answer: Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {hit["id"] for hit in answer.json()["hits"]}


def _search(client: TestClient, condition: dict[str, Any]) -> Response:
    query = {"like": [{"text": "a chest"}], "filter": condition, "limit": 50}
    return client.post(f"{FILMS}/search", json=query)


@pytest.mark.slow
def test_films_are_searched_by_their_attributes_and_no_marker_is_left(
    searched: tuple[Searched, TestClient],
) -> None:
    kept, client = searched
    _filters_find_films(client)
    _pictures_are_seen(kept, client)
    _uploads_are_stored_or_refused(kept, client)
    kept.keep(client.get("/metrics"))
    kept.keep(client.get("/v1/audit"))
    kept.said.append(kept.log.getvalue().encode())
    for message in kept.said:
        assert not has_marker(message), message[:3000]
    assert places_of_marker(kept.base) == []


def _filters_find_films(client: TestClient) -> None:
    films = {number: uid("film", number) for number in (0, 1, 2, 3, 7)}
    assert _ids(_search(client, {"field": "view", "eq": "LL"})) == {films[0], films[2]}
    assert _ids(_search(client, {"field": "age", "gte": 31, "lt": 32})) == {films[2], films[3]}
    assert _ids(_search(client, {"field": "sex", "eq": "M"})) == {films[0], films[1]}
    assert _ids(_search(client, {"field": "body_part", "eq": "CHEST"})) == set(films.values())
    facets = {field["name"]: field for field in client.post(f"{FILMS}/facets", json={}).json()["fields"]}
    assert facets["date"]["kinds"] == ["date"]
    day = {"field": "date", "gte": "2022-12", "lt": "2024-01-15"}
    assert _ids(_search(client, day)) == set(films.values())
    image = client.get(f"{FILMS}/images/{films[0]}").json()
    assert image["group"] == image["metadata"]["patient"] != ""


def _pictures_are_seen(kept: Searched, client: TestClient) -> None:
    film = uid("film", 0)
    for path in ("", "/content", "/thumbnail"):
        assert kept.keep(client.get(f"{FILMS}/images/{film}{path}")).status_code == 200
    kept.keep(_search(client, {"field": "view", "eq": "PA"}))
    kept.keep(client.post(f"{FILMS}/facets", json={}))


def _uploads_are_stored_or_refused(kept: Searched, client: TestClient) -> None:
    upload, record = encoded(marked_film(30)), {"record": "{}"}
    file = {"image": ("x.dcm", upload, "application/dicom")}
    sent = client.put(f"{FILMS}/images/sent", data=record, files=file)
    assert kept.keep(sent).status_code == 201, sent.text
    kept.keep(client.get(f"{FILMS}/images/sent/content"))
    for broken in (upload[:-1000], _spoilt(upload, "photometric"), _spoilt(upload, "syntax")):
        files = {"image": ("x.dcm", broken)}
        refused = client.put(f"{FILMS}/images/broken", data=record, files=files)
        assert kept.keep(refused).status_code == 415, refused.text
        like = client.post(f"{FILMS}/search/upload", files=files)
        assert kept.keep(like).status_code in (404, 415, 422), like.text


def test_the_command_names_no_file_and_says_where_to_look(tmp_path: Path) -> None:
    films = [encoded(make_film(1)), encoded(make_film(2))[:-1000]]
    code, message = _import(tmp_path, films, "--max-rejected", "0.01")
    assert code == 1
    assert "Too much of SOURCE cannot be used: 1 of 2 files" in message
    assert "File 2: The DICOM image is damaged" in message
    assert "File numbers are places in: find SOURCE -type f | LC_ALL=C sort." in message
    assert MARKER not in message
    assert not (tmp_path / "out" / "manifest.jsonl").exists()


def test_another_import_of_the_home_gives_the_same_pseudonyms(tmp_path: Path) -> None:
    patients = []
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(encoded(make_film(1)))
        outcome("import", "dicom", tmp_path / name, tmp_path / f"out-{name}", "--home", tmp_path / "home")
        line = json.loads((tmp_path / f"out-{name}" / "manifest.jsonl").read_text())
        patients.append((line["metadata"]["patient"], line["metadata"]["date"]))
    assert patients[0] == patients[1]


def test_options_of_other_layouts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"")
    for arguments, words in (
        (
            ("dicom", tmp_path, tmp_path / "out", "--table", "t.csv"),
            "`recoquest import dicom` takes no --table",
        ),
        (("folder", tmp_path, "--modality", "CT"), "`recoquest import folder` takes no --modality, only"),
        (("dicom", tmp_path), "give a second folder"),
        (("nothing", tmp_path), "'nothing' is none of folder, karpathy, coco, mimic-cxr"),
    ):
        code, message = outcome("import", *arguments)
        assert (code > 0, words in " ".join(message.replace("│", " ").split())) == (True, True), message


@pytest.mark.slow
def test_the_quarantine_is_taken_after_a_look(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1, BurnedInAnnotation="YES")))
    arguments = ("dicom", str(tmp_path / "1"), str(tmp_path / "out"), "--home", str(tmp_path / "home"))
    _, message = outcome("import", *arguments)
    assert "quarantined: BurnedInAnnotation is YES: 1" in message
    table = tmp_path / "out" / "quarantine.csv"
    with table.open(newline="") as file:
        assert [row["sop"] for row in csv.DictReader(file)] == [uid("film", 1)]
    looked_at = table.rename(tmp_path / "looked-at.csv")
    _, message = outcome("import", *arguments, "--take-quarantined", str(looked_at))
    assert "1 taken" in message


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_stopped_import_goes_on_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    source, out = tmp_path / "films", tmp_path / "out"
    source.mkdir()
    for film in range(60):
        (source / str(film)).write_bytes(encoded(make_film(film, rows=600, columns=500)))
    command = [*COMMAND, "import", "dicom", str(source), str(out)]
    environment = {**os.environ, "RECOQUEST_HOME": str(tmp_path / "home")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(list(out.glob("images/*.dcm"))) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        _, message = process.communicate(timeout=60)
    assert process.returncode != 0
    assert not (out / "manifest.jsonl").exists()
    if number != signal.SIGKILL:
        assert "continues where this one ended" in message
        assert not [path for path in out.rglob("*") if path.name.endswith(".part")]
    before = {path: path.stat().st_mtime_ns for path in out.glob("images/*.dcm")}
    assert 5 <= len(before) < 60
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(read_manifest(out).records) == len(list((out / "images").iterdir())) == 60


def test_films_get_the_reports_of_a_folder(tmp_path: Path) -> None:
    reports = ["--reports", tmp_path / "reports"]
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / f"{uid('study', 1)}.txt").write_text("Patient: X\nIMPRESSION: Left effusion.")
    code, message = _import(tmp_path, [encoded(make_film(1))], *reports)
    assert code == 0, message
    assert "Reports: 1 found = 1 matched + 0 without an image + 0 refused + 0 left out." in message
    (record,) = read_manifest(tmp_path / "out").records
    assert (record.report, record.texts) == ("IMPRESSION: Left effusion.", ("Left effusion.",))
    assert "1 text, for 1 of 1 image." in message
    assert outcome("import", "folder", tmp_path / MARKER, tmp_path / "out", *reports)[0] != 0


def test_a_study_with_films_of_two_patients_is_named(tmp_path: Path) -> None:
    films = [make_film(n, study=1 if n < 3 else 3, PatientID=patient) for n, patient in enumerate("ABA", 1)]
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / f"{uid('study', 1)}.txt").write_text("IMPRESSION: Left effusion.")
    _, message = _import(tmp_path, map(encoded, films), "--reports", tmp_path / "reports")
    assert f"Study {uid('study', 1)} has films of 2 patients" in message
    assert uid("study", 3) not in message
    assert "images of several patients have its study, and it names no patient" in message
    assert "0 texts, for 0 of 3 images." in message
