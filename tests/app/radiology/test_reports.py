"""Reports as HL7 messages over a socket, and as structured reports of an archive."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset
from pydicom.sequence import Sequence

from app.cli.serve import bind
from app.engine import open_engine
from app.radiology.archive import Archive, ArchiveError
from app.radiology.listing import Selection
from app.radiology.reports import Code, Limits, Listener, ReportIntake, Taken, acknowledgement
from index.catalogue.collections import require_collection
from index.catalogue.images import require_image
from index.keys.home_secret import patient_key
from index.reports import count_waiting
from tests.app.conftest import COLLECTION, Indexed
from tests.app.radiology.conftest import FILMS, Home
from tests.app.radiology.films import give_studies, holding, stored
from tests.dicom_films import MARKER, make_film, uid
from tests.orthanc import OrthancServer
from tests.training.clinical.reports.documents import (
    MARKERS,
    PATIENT,
    STUDY,
    code,
    container,
    hl7_report,
    structured_report,
)
from tests.training.imaging.processes.decoding import wait_until

KEY_UNKNOWN = "204^Unknown key identifier"
LIMITS = Limits(message_bytes=200_000, connections=3, message_s=0.6, idle_s=5.0)


@pytest.fixture
def films(own: Indexed) -> Indexed:
    give_studies(own)
    return own


@pytest.fixture
def port(films: Indexed) -> Iterator[int]:
    with _listening(films, LIMITS) as port:
        yield port


@contextmanager
def _listening(films: Indexed, limits: Limits) -> Iterator[int]:
    """The port of a listener in a thread of its own."""
    engine, stops = open_engine(films.settings), list[Callable[[], object]]()
    started = threading.Event()

    def on_stop(stop: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop))
        started.set()

    with bind("127.0.0.1", 0) as taken:
        intake = ReportIntake(engine, films.settings, COLLECTION, "hl7")
        listener = Listener(intake, patient_key(films.settings.home), limits)
        running = threading.Thread(target=listener.run, args=(taken, on_stop))
        running.start()
        assert started.wait(10)
        yield taken.getsockname()[1]
        stops[0]()
        running.join(10)
        assert not running.is_alive()
    engine.close()


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def _framed(message: bytes) -> bytes:
    return b"\x0b" + message + b"\x1c\r"


def _receive(connection: socket.socket) -> str:
    """The next answer; "" at the end of the connection."""
    received = b""
    while not received.endswith(b"\x1c\r"):
        try:
            more = connection.recv(65_536)
        except ConnectionResetError:
            more = b""
        if not more:
            return received.decode()
        received += more
    return received.decode()


def _code(answer: str) -> str:
    return next((line.split("|")[1] for line in answer.split("\r") if line.startswith("MSA")), "")


def _send(port: int, message: bytes) -> str:
    with _connect(port) as connection:
        connection.sendall(_framed(message))
        return _receive(connection)


@pytest.mark.parametrize(
    "patient", [PATIENT, f"NAT1^^^GOV^NI~{PATIENT}", f'""~{PATIENT}^^^H^MR', f"{PATIENT}^^^H~X1"]
)
def test_a_report_is_there_once_it_is_acknowledged(films: Indexed, port: int, patient: str) -> None:
    """Any id of the patient is enough."""
    assert "MSA|AA|77|" in _send(port, hl7_report(control="77", patient=patient))
    assert (stored(films, "image-1").report or "").startswith("INDICATION: Cough.")
    assert _code(_send(port, hl7_report(accession="unknown", study=None))) == "AA"


def test_several_messages_on_one_connection(films: Indexed, port: int) -> None:
    with _connect(port) as connection:
        first, second = (_framed(hl7_report([text], control=text)) for text in ("Mass.", "Nodule."))
        connection.sendall(b"\r\n" + first + second[:50])
        assert "MSA|AA|Mass.|" in _receive(connection)
        connection.sendall(second[50:])
        assert "MSA|AA|Nodule.|" in _receive(connection)
    assert stored(films, "image-2").report == "Nodule."


@pytest.mark.parametrize(
    ("message", "reason", "condition"),
    [
        (hl7_report(kind="ADT^A01"), "no message with a report", 200),
        (hl7_report([]), "no text in OBX-5", 101),
        (hl7_report(accession="", study=None).replace(b"P1", b""), "neither a study nor", 101),
        (hl7_report().replace(b"|P|2.5.1", b"|P|2.5.1||||||KLINGON"), "character set", 103),
        (b"PID|1|2", "does not begin with MSH", 102),
        (b"", "does not begin with MSH", 102),
        (hl7_report(study=f"{STUDY}.4", accession="Q"), "another one than that of the study", 204),
    ],
)
def test_what_is_not_taken_is_rejected_with_its_reason(
    port: int, message: bytes, reason: str, condition: int
) -> None:
    answer = _send(port, message)
    assert _code(answer) == "AR"
    assert reason in answer
    assert f"\rERR|||{condition}^" in answer
    assert not any(marker in answer for marker in MARKERS)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"hello", "begins with the byte 0B"),
        (_framed(b"MSH|")[:-2] + b"x" * 250_000, "at most 200,000 bytes"),
        (b"\x0bMSH|^~\\&|", "took more than 0.6 seconds"),
    ],
)
def test_bytes_that_are_no_message_end_the_connection(port: int, sent: bytes, reason: str) -> None:
    with _connect(port) as connection:
        connection.sendall(sent)
        answer = _receive(connection)
        assert _code(answer) == "AR"
        assert reason in answer
        assert _receive(connection) == ""
    assert _code(_send(port, hl7_report())) == "AA"


def test_a_slow_sender_and_one_that_goes_away_hold_nobody_up(port: int) -> None:
    with _connect(port) as slow, _connect(port) as gone:
        slow.sendall(b"\x0bMSH")
        gone.sendall(_framed(hl7_report())[:80])
        gone.close()
        assert _code(_send(port, hl7_report())) == "AA"
        assert "took more than" in _receive(slow)


def test_connections_beyond_the_limit_are_closed_while_all_others_send(port: int) -> None:
    with ExitStack() as opened:
        for _ in range(LIMITS.connections):
            opened.enter_context(_connect(port)).sendall(b"\x0bMSH")
        # Until what was sent has been read.
        time.sleep(0.2)
        assert _receive(opened.enter_context(_connect(port))) == ""
    wait_until(lambda: _code(_send(port, hl7_report())) == "AA")


def test_silent_connections_make_room_for_those_that_speak_and_pause(port: int) -> None:
    with ExitStack() as opened:
        silent = [opened.enter_context(_connect(port)) for _ in range(4 * LIMITS.connections)]
        for _ in range(2):
            assert _code(_send(port, hl7_report())) == "AA"
        # The oldest went first.
        assert _receive(silent[0]) == ""
        sender = opened.enter_context(_connect(port))
        for silent_ones in (3 * LIMITS.connections, 3 * LIMITS.connections, 0):
            sender.sendall(_framed(hl7_report()))
            assert _code(_receive(sender)) == "AA"
            for _ in range(silent_ones):
                opened.enter_context(_connect(port))


def test_a_message_that_stalls_makes_room_as_well(films: Indexed) -> None:
    with _listening(films, replace(LIMITS, message_s=600.0, idle_s=600.0)) as port, ExitStack() as opened:
        for _ in range(LIMITS.connections):
            opened.enter_context(_connect(port)).sendall(b"\x0bMSH")
        wait_until(lambda: _code(_send(port, hl7_report())) == "AA")


def test_concurrent_senders_are_all_answered(films: Indexed, port: int) -> None:
    def send(number: int) -> str:
        return _code(_send(port, hl7_report([f"Nodule of {number} mm."], accession="A3", study=None)))

    with ThreadPoolExecutor(LIMITS.connections) as senders:
        assert set(senders.map(send, range(12))) == {"AA"}
    assert (stored(films, "image-3").report or "").startswith("Nodule of ")


def test_the_log_and_the_home_have_no_word_of_people(
    films: Indexed, port: int, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for message in (hl7_report(), hl7_report(kind="ADT^A01"), hl7_report().replace(b"PID|", b"P|")):
        _send(port, message)
    output = "".join((*capfd.readouterr(), caplog.text)).lower()
    for marker in MARKERS:
        assert marker.lower() not in output
        assert holding(films.settings.home, marker) == []
    assert "effusion" not in output


def _listen(films: Indexed) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-c", "from app.cli.main import run; run()", "hl7", COLLECTION, "--port", "0"]
    options = ["--home", str(films.settings.home), "--device", "cpu"]
    process = subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("Listening for HL7 on 127.0.0.1:"), line
    return process, int(line.split(":")[1].partition(",")[0])


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill(films: Indexed) -> None:
    """Reports acknowledged before a kill are in the catalogue, and the rest can be sent again."""
    acknowledged = -1
    for round_ in range(3):
        process, port = _listen(films)
        with _connect(port) as connection:
            for number in range(20 * round_, 20 * round_ + 20):
                issued = f"2024{number // 28 + 1:02d}{number % 28 + 1:02d}"
                connection.sendall(_framed(hl7_report([f"Nodule of {number} mm."], issued=issued)))
                if number == 20 * round_ + 7:
                    process.send_signal(signal.SIGKILL)
                if _code(_receive(connection)) != "AA":
                    break
                acknowledged = number
        process.wait(20)
        for name in ("image-1", "image-2"):
            report = stored(films, name).report or ""
            assert int(report.split()[2]) >= acknowledged, name


@pytest.mark.slow
def test_a_signal_ends_the_listener(films: Indexed) -> None:
    process, port = _listen(films)
    assert _code(_send(port, hl7_report())) == "AA"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert stored(films, "image-1").report


def _fields(answer: bytes, name: str) -> list[str]:
    (segment,) = [line for line in answer.decode().split("\r") if line.startswith(name)]
    return segment.split("|")


@pytest.mark.parametrize("code", ["AA", "AE", "AR"])
def test_an_acknowledgement_names_the_message_and_nothing_of_it(code: Code) -> None:
    answer = acknowledgement(code, hl7_report(control="MSG00042"), "Not taken: a|b^c\rd.", KEY_UNKNOWN)
    assert _fields(answer, "MSH")[8] == "ACK^R01^ACK"
    assert _fields(answer, "MSA")[1:] == [code, "MSG00042", "Not taken: a b c d."]
    assert not any(marker.encode() in answer for marker in MARKERS)
    if code == "AA":
        assert b"ERR|" not in answer
    else:
        condition = KEY_UNKNOWN if code == "AR" else "207^Application internal error"
        assert _fields(answer, "ERR")[3] == f"{condition}^HL70357"


def test_a_damaged_message_has_an_acknowledgement() -> None:
    for message in (b"", b"MSH", b"MSH|", b"hello", b"\xff" * 100, b"MSH|^~\\&|a\rPID", b"MSH\r\r"):
        answer = acknowledgement("AR", message, "It is damaged.")
        assert _fields(answer, "MSA")[1:] == ["AR", "", "It is damaged."]
    # A control id adds no segments.
    answer = acknowledgement("AA", b"MSH|^~\\&|a|b|c|d|e||ORU^R01|1" + b"\x1c2" * 300 + b"|P|2.5")
    assert answer.count(b"\x1c") == 0
    assert _fields(answer, "MSA")[2] == "1"


def make_report(number: int, film: Dataset, *sentences: str, **more: Any) -> Dataset:
    """A structured report in the study of a film, with people in its header."""
    of_film = ("StudyInstanceUID", "AccessionNumber", "PatientID", "PatientName", "StudyDate", "StudyTime")
    own = {
        "SOPInstanceUID": uid("report", number),
        "SeriesInstanceUID": uid("series", film.StudyInstanceUID, "SR"),
        **{name: film[name].value for name in of_film},
    }
    report = structured_report([container("121070", "Findings", *sentences)], **{**own, **more})
    report.file_meta.MediaStorageSOPInstanceUID = report.SOPInstanceUID
    return report


def predecessor(number: int, study: int) -> Sequence:
    """The reference of a later version of a report to the one before."""
    image, series, whole = Dataset(), Dataset(), Dataset()
    image.ReferencedSOPClassUID = structured_report().SOPClassUID
    image.ReferencedSOPInstanceUID = uid("report", number)
    series.SeriesInstanceUID = uid("series", study, "SR")
    series.ReferencedSOPSequence = Sequence([image])
    whole.StudyInstanceUID = uid("study", study)
    whole.ReferencedSeriesSequence = Sequence([series])
    return Sequence([whole])


def _report_of(home: Home, film: int) -> str | None:
    with home.engine.home.catalogue.read() as session:
        return require_image(session, FILMS, uid("film", film)).report


def test_a_report_is_at_all_films_of_its_study_also_those_that_come_later(
    home: Home, orthanc: OrthancServer
) -> None:
    films = (make_film(1), make_film(2, study=1, view="LL"), make_film(3))
    sync, first = home.follow(orthanc, *films, make_report(1, make_film(1), "Small left effusion."))
    assert (first.found, first.taken, first.reports, first.left_out) == (4, 4, 1, 0)
    assert [_report_of(home, film) for film in (1, 2, 3)] == ["FINDINGS: Small left effusion."] * 2 + [None]
    orthanc.store([make_film(4, study=1, view="AP")])
    grown = sync.run()
    assert (grown.taken, grown.up_to_date, grown.reports) == (1, 4, 0)
    assert _report_of(home, 4) == "FINDINGS: Small left effusion."


def test_a_report_waits_for_films_that_the_filters_let_in(home: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1, Modality="CR"), make_report(1, make_film(1), "Small left effusion.")])
    orthanc.store([make_film(2, study=1, view="LL")])
    narrow = Selection(("DX",))
    done = home.sync(Archive(orthanc.dicom_web), narrow).run()
    assert (done.taken, done.left_out, done.reports) == (2, 1, 1)
    assert _report_of(home, 2) == "FINDINGS: Small left effusion."
    home.sync(Archive(orthanc.dicom_web)).run()
    assert _report_of(home, 1) == "FINDINGS: Small left effusion."


def test_a_later_version_counts_and_the_one_before_when_it_is_deleted(
    home: Home, orthanc: OrthancServer
) -> None:
    sync, _ = home.follow(orthanc, make_film(1), make_report(1, make_film(1), "Small left effusion."))
    later = {"PredecessorDocumentsSequence": predecessor(1, 1), "ContentDate": "20240305"}
    orthanc.store([make_report(2, make_film(1), "No effusion.", **later)])
    assert sync.run().reports == 1
    assert _report_of(home, 1) == "FINDINGS: No effusion."
    orthanc.delete(uid("report", 2))
    gone = sync.run()
    assert (gone.removed, gone.reports_removed, gone.found) == (0, 1, 2)
    assert _report_of(home, 1) == "FINDINGS: Small left effusion."
    orthanc.delete(uid("report", 1))
    assert sync.run().reports_removed == 1
    assert _report_of(home, 1) is None
    assert home.ids() == {uid("film", 1)}


def test_a_report_that_is_sent_again_is_read_again(home: Home, orthanc: OrthancServer) -> None:
    sync, _ = home.follow(orthanc, make_film(1), make_report(1, make_film(1), "Small left effusion."))
    orthanc.store([make_report(1, make_film(1), "Large left effusion.")])
    assert sync.run().reports == 1
    assert _report_of(home, 1) == "FINDINGS: Large left effusion."
    orthanc.store([make_report(1, make_film(1))])
    emptied = sync.run()
    assert (emptied.refused, emptied.reports, emptied.reports_removed) == (1, 0, 1)
    assert _report_of(home, 1) is None
    (reason,) = emptied.reasons
    assert "no clinical section" in reason


def test_what_stops_before_a_report_is_noted_takes_it_again(
    home: Home, orthanc: OrthancServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = ReportIntake.take

    def stop(intake: ReportIntake, reports: Any) -> Taken:
        take(intake, reports)
        raise ArchiveError("The archive is gone.")

    orthanc.store([make_film(1), make_report(1, make_film(1), "Small left effusion.")])
    with monkeypatch.context() as patch:
        patch.setattr(ReportIntake, "take", stop)
        with pytest.raises(ArchiveError):
            home.sync(Archive(orthanc.dicom_web)).run()
    again = home.sync(Archive(orthanc.dicom_web)).run()
    assert (again.found, again.reports) == (2, 1)
    assert _report_of(home, 1) == "FINDINGS: Small left effusion."
    orthanc.delete(uid("report", 1))
    assert home.sync(Archive(orthanc.dicom_web)).run().reports_removed == 1
    assert _report_of(home, 1) is None


def test_reports_go_with_their_study(home: Home, orthanc: OrthancServer) -> None:
    orthanc.store([make_report(1, make_film(1), "Small left effusion.")])
    orthanc.store([make_report(3, make_film(3), "A study without films.")])
    sync, first = home.follow(orthanc, make_film(1), make_film(2))
    assert first.reports == 2
    assert _waiting(home) == 1
    orthanc.delete(uid("study", 1))
    orthanc.delete(uid("study", 3))
    gone = sync.run()
    assert (gone.removed, gone.studies, _waiting(home)) == (1, 1, 0)
    assert home.ids() == {uid("film", 2)}


def test_a_report_of_another_patient_is_refused(home: Home, orthanc: OrthancServer) -> None:
    home.follow(orthanc, make_film(1))
    of_another = make_report(1, make_film(1), "Small left effusion.", PatientID=f"{MARKER}P7")
    _, done = home.follow(orthanc, of_another)
    assert (done.refused, done.reports) == (1, 0)
    assert _report_of(home, 1) is None


def test_results_of_programs_are_left_out_and_counted(home: Home, orthanc: OrthancServer) -> None:
    more = {"ConceptNameCodeSequence": Sequence([code("126000", "DCM", "Imaging Measurement Report")])}
    result = make_report(2, make_film(1), "Pneumothorax.", **more, ContentDate="20250101")
    _, done = home.follow(orthanc, make_film(1), make_report(1, make_film(1), "No pneumothorax."), result)
    assert (done.reports, done.left_out) == (1, 1)
    assert any("Imaging Measurement Report" in reason for reason in done.reasons)
    assert _report_of(home, 1) == "FINDINGS: No pneumothorax."


def test_no_name_of_a_report_is_kept(home: Home, orthanc: OrthancServer) -> None:
    home.follow(orthanc, make_film(1), make_report(1, make_film(1), f"{MARKER} has a small left effusion."))
    assert _report_of(home, 1) == "FINDINGS: ___ has a small left effusion."
    for path in Path(home.settings.home).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(marker.encode() in content for marker in (*MARKERS, MARKER, uid("report", 1)))


def _waiting(home: Home) -> int:
    with home.engine.home.catalogue.read() as session:
        return count_waiting(session, require_collection(session, FILMS).id)
