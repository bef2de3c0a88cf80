"""Requests to an archive: credentials, retries, limits, parts of answers, pace, errors that name nobody."""

import base64
import gzip
import subprocess
import time
import tracemalloc
from datetime import datetime, timedelta
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.radiology.archive import (
    Archive,
    ArchiveError,
    Hours,
    MultipartError,
    OutsideHoursError,
    Pace,
    boundary_of,
    items,
    number,
    read_parts,
    text,
    values,
)
from app.settings import Settings
from tests.app.radiology.small_archive import SmallArchive, multipart, serve
from tests.dicom_films import encoded, make_film, uid

FILM = make_film(1)
DICOM = {"Content-Type": "application/dicom"}
PATH = f"studies/{FILM.StudyInstanceUID}/series/{FILM.SeriesInstanceUID}/instances/{FILM.SOPInstanceUID}"


def _archive(url: str, settings: Settings | None = None) -> Archive:
    return Archive(url, settings, pauses=(0.0, 0.0, 0.0))


def _file_of(archive: SmallArchive, most: int = 1 << 20) -> bytes | None:
    with serve(archive):
        return _archive(archive.url).get_file(PATH, most)


def test_a_file_comes_as_the_archive_has_it_also_outside_of_multipart() -> None:
    archive = SmallArchive([FILM])
    assert _file_of(archive) == encoded(FILM)
    assert "transfer-syntax=*" in archive.requests[0][1]["accept"]
    assert _file_of(SmallArchive(faults=[(200, DICOM, b"whole")]), 5) == b"whole"
    with pytest.raises(ArchiveError, match="several files for one instance"):
        _file_of(SmallArchive(faults=[multipart([b"one", b"other"])]))


def test_a_file_that_is_too_large_is_not_kept() -> None:
    for large in (multipart([bytes(1_000_001)]), (200, DICOM, bytes(1_000_001))):
        assert _file_of(SmallArchive(faults=[large]), 1_000_000) is None


@pytest.mark.slow
def test_an_answer_that_inflates_takes_no_more_memory_than_a_file_may() -> None:
    body = gzip.compress(gzip.compress(bytes(1 << 28)))
    archive = SmallArchive(faults=[(200, {**DICOM, "Content-Encoding": "gzip, gzip"}, body)])
    with serve(archive):
        tracemalloc.start()
        assert _archive(archive.url).get_file(PATH, 1_000_000) is None
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 1 << 24


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_asked_again(status: int) -> None:
    archive = SmallArchive([FILM], faults=[(status, {}, b""), (status, {}, b"")])
    assert _file_of(archive) == encoded(FILM)
    assert len(archive.requests) == 3


def test_pauses_grow_and_the_archive_may_ask_for_longer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=time.monotonic)
    monkeypatch.setattr("app.radiology.archive.time", clock)
    requests = ("0", "7", "Wed, 21 Oct 2026 07:28:00 GMT", "0", "100")
    archive = SmallArchive(faults=[(503, {"Retry-After": after}, b"") for after in requests])
    with serve(archive):
        with pytest.raises(ArchiveError, match=r"The archive fails with status 503\.") as failed:
            Archive(archive.url).get_json("studies")
        assert Archive(archive.url).get_json("studies").value is None
    assert (failed.value.status, failed.value.passing, failed.value.late) == (503, True, False)
    # Up to a fifth more or less, so that several callers don't ask together.
    assert slept == [pytest.approx(1, rel=0.2), 7, pytest.approx(9, rel=0.2), 60]


def test_a_file_that_is_cut_is_asked_again_and_never_taken() -> None:
    cut = multipart([encoded(FILM)], end="")
    short = multipart([encoded(FILM)])
    short = (200, {**short[1], "Content-Length": str(len(short[2]) + 10)}, short[2])
    archive = SmallArchive([FILM], faults=[cut, short])
    with serve(archive):
        assert _archive(archive.url).get_file(PATH, 1 << 20) == encoded(FILM)
        archive.faults = [cut] * 4
        with pytest.raises(ArchiveError, match="ended its answer too soon"):
            _archive(archive.url).get_file(PATH, 1 << 20)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ((401, {}, b""), "check user, password or token"),
        ((403, {}, b""), "check user, password or token"),
        ((404, {}, b""), "status 404"),
        ((300, {}, b""), "sends elsewhere"),
        ((400, {}, b""), "fails with status 400"),
        ((501, {}, b""), "fails with status 501"),
        ((302, {"Location": "http://elsewhere/"}, b""), "sends elsewhere"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "doesn't answer in JSON"),
    ],
)
def test_what_will_not_pass_is_said_at_once(fault: tuple[int, dict[str, str], bytes], expected: str) -> None:
    archive = SmallArchive(faults=[fault])
    with serve(archive), pytest.raises(ArchiveError, match=expected) as failed:
        _archive(archive.url).get_json("studies")
    assert len(archive.requests) == 1
    assert (failed.value.status, failed.value.passing) == (fault[0], False)


def test_a_partial_answer_is_told_and_a_long_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.radiology.archive._MOST_JSON_BYTES", 3_000_000)
    warned, long = {"Warning": '299 pacs: "There are more results"'}, b"[%2999999s" % b"]"
    archive = SmallArchive(faults=[(200, warned, b"[1]"), (200, {}, long), (200, {}, long + b" ")])
    with serve(archive), pytest.raises(ArchiveError, match="The archive's answer has over 3 MB"):
        for expected in (([1], True), ([], False), None):
            answer = _archive(archive.url).get_json("studies")
            assert (answer.value, answer.partial) == expected
    assert len(archive.requests) == 3


def test_attributes_are_read_from_dicom_json_whatever_they_hold() -> None:
    item = {"a": {"Value": [None, " 12 ", 3]}, "b": {"Value": []}, "c": {"Value": "x"}, "d": 7, "e": {}}
    assert [values(item, tag) for tag in "abcdef"] == [[" 12 ", 3], [], [], [], [], []]
    assert [text(item, tag) for tag in "abf"] == ["12", "", ""]
    assert [number(item, tag) for tag in "abf"] == [12, None, None]
    assert [items(value) for value in (None, item, [item])] == [[], [item], [item]]
    for wrong in ("x", [item, 1]):
        with pytest.raises(ArchiveError, match="isn't DICOM JSON"):
            items(wrong)


def test_an_archive_that_is_not_there_is_named_without_its_films() -> None:
    with pytest.raises(ArchiveError, match="cannot be reached") as caught:
        _archive("http://127.0.0.1:9/dicom-web").get_file(PATH, 1)
    assert uid("study", 1) not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        (
            {"pacs_user": "reader", "pacs_password": "pass:wörd"},
            "Basic " + base64.b64encode("reader:pass:wörd".encode()).decode(),
        ),
        ({"pacs_user": "reader"}, "Basic " + base64.b64encode(b"reader:").decode()),
        ({"pacs_token": "t0ken"}, "Bearer t0ken"),
        ({"pacs_user": "reader", "pacs_password": "wörd", "pacs_token": "t0ken"}, "Bearer t0ken"),
    ],
)
def test_credentials_are_sent_and_never_shown(settings: dict[str, str], sent: str) -> None:
    archive, given = SmallArchive([FILM]), Settings.model_validate(settings)
    with serve(archive):
        _archive(archive.url, given).get_json("studies")
    assert archive.requests[0][1]["authorization"] == sent
    assert not {word for word in ("wörd", "t0ken") if word in repr(given)}


@pytest.mark.parametrize(
    "url",
    ["http://reader:word@pacs/dicom-web", "http://pacs/dicom-web?key=word", "pacs", "ftp://pacs/", "http://"],
)
def test_an_address_with_credentials_or_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        Archive(url)
    assert "word" not in str(caught.value).replace("RECOQUEST_PACS_PASSWORD", "")


def test_an_archive_with_a_certificate_of_ones_own_needs_its_authority(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=pacs"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )

    def wrap(server: ThreadingHTTPServer) -> None:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)

    archive = SmallArchive([FILM])
    with serve(archive, wrap):
        with pytest.raises(ArchiveError, match="RECOQUEST_PACS_CA"):
            _archive(archive.url).get_json("studies")
        result = _archive(archive.url, Settings(pacs_ca=certificate)).get_json("studies").value
        assert len(result) == 1


_BOUNDARY = b"frontier"


def _body(parts: list[bytes]) -> bytes:
    head = b"\r\n--frontier\r\nContent-Type: Application/DICOM; transfer-syntax=1.2\r\nX: y\r\n\r\n"
    return b"".join(head + part for part in parts) + b"\r\n--frontier--"


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=4).filter(
        lambda parts: not any(b"\r\n--frontier" in part + b"\r\n--fron" for part in parts)
    )
)
def test_parts_are_as_they_were_sent(parts: list[bytes]) -> None:
    result = read_parts(_body(parts), _BOUNDARY, 100, 9)
    assert [part.content for part in result] == parts
    assert {part.media_type for part in result} == {"application/dicom"}


@pytest.mark.parametrize(
    ("body", "limits", "parts"),
    [
        # One that is too large is passed over, and the next is read.
        (_body([bytes(11), b"small", bytes(10)]), (10, 9), [None, b"small", bytes(10)]),
        # Reading ends at the first part too many.
        (_body([b"part"] * 5)[:-20], (10, 2), [b"part"] * 3),
        (b"This is a message in parts.\r\n\r\n--frontier\r\n\r\none\r\n--frontier--", (100, 9), [b"one"]),
        (b"--frontiers, and\r\n--frontier \t\r\n\r\none\r\n--frontier-- \r\nend", (100, 9), [b"one"]),
        (
            b"--frontier\r\nX: a\r\n b\r\n\r\n--frontier\r\n\r\n\r\n\r\n--frontier--\r\n",
            *((100, 9), [b"", b"\r\n"]),
        ),
        (
            b"--frontier\r\n\r\none\r\n--frontierland\r\n--fron\r\n--frontier--",
            *((100, 9), [b"one\r\n--frontierland\r\n--fron"]),
        ),
    ],
)  # fmt: skip
def test_bodies_are_read_as_the_standard_writes_them(
    body: bytes, limits: tuple[int, int], parts: list[bytes | None]
) -> None:
    assert [part.content for part in read_parts(body, _BOUNDARY, *limits)] == parts


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        *((_body([b"one", b"two"])[:-left], "before its last boundary") for left in (1, 2, 8, 40)),
        (b"no boundary at all", "."),
        (b"--frontier\r\nno header\r\n\r\n", "."),
        (b"--frontier\r\nno header\r\n\r\n\r\n--frontier--", "."),
        (b"--frontier\r\nX: " + bytes(9000) + b"\r\n\r\n\r\n--frontier--", "is not well-formed"),
    ],
)
def test_a_body_that_is_cut_or_of_another_form_is_an_error(body: bytes, expected: str) -> None:
    with pytest.raises(MultipartError, match=expected):
        read_parts(body, _BOUNDARY, 100, 9)


def test_boundaries_are_found_and_other_kinds_have_none() -> None:
    assert boundary_of('multipart/related; type="application/dicom"; boundary=a-b') == b"a-b"
    assert boundary_of('Multipart/Related; boundary="a b"') == b"a b"
    longest = b"b" * 256
    assert read_parts(b"--%b\r\n\r\none\r\n--%b--" % (longest, longest), longest, 9, 9)[0].content == b"one"
    with pytest.raises(MultipartError, match="too long"):
        read_parts(b"", longest + b"b", 9, 9)
    for header in ("", "application/dicom", "multipart/form-data; boundary=a", "multipart/related"):
        with pytest.raises(MultipartError):
            boundary_of(header)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("20-06", (20, 23, 0, 5), (6, 12, 19)),
        ("8-17", (8, 16), (7, 17, 0)),
        ("22-24", (22, 23), (0, 21)),
        *((text, None, ()) for text in ("", "20", "0-24", "20-25", "6-6", "20:00-06:00", "a-b")),
    ],
)
def test_hours_are_read_across_midnight(
    text: str, inside: tuple[int, ...] | None, outside: tuple[int, ...]
) -> None:
    if inside is None:
        with pytest.raises(ValueError, match="not two different hours"):
            Hours.parse(text)
        return
    hours = Hours.parse(text)
    assert all(map(hours.include, inside))
    assert not any(map(hours.include, outside))


def test_outside_its_hours_a_request_waits_or_is_refused() -> None:
    at = [datetime(2026, 1, 1, 17, 58, 50, 500_000)]
    pace = partial(
        Pace, hours=Hours.parse("18-06"), now=lambda: at[-1],
        sleep=lambda seconds: at.append(at[-1] + timedelta(seconds=seconds)),
    )  # fmt: skip
    with pytest.raises(OutsideHoursError):
        pace().wait()
    pace(waits=True).wait()
    assert [(one - at[0]).total_seconds() for one in at] == [0, 30, 60, 69.5]
    pace().wait()
    assert Hours.parse("8-17").seconds_until(datetime(2026, 1, 1, 18, 30)) == 13.5 * 3600


def test_requests_are_spread_by_their_rate() -> None:
    slept: list[float] = []
    pace = Pace(100.0, sleep=slept.append)
    for _ in range(5):
        pace.wait()
    # The clock hardly continues meanwhile: each waits for its own place.
    assert sum(slept) == pytest.approx(0.01 + 0.02 + 0.03 + 0.04, abs=0.01)
