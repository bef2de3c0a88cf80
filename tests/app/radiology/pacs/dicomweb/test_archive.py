"""Requests to an archive: credentials, retries, limits, and errors that name nobody."""

import base64
import gzip
import subprocess
import tracemalloc
from http.server import ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from app.radiology.archive import Archive, ArchiveError
from app.settings import Settings
from tests.app.radiology.pacs.small_archive import SmallArchive, multipart, serve
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
    assert _file_of(SmallArchive(faults=[(200, DICOM, b"whole")])) == b"whole"


def test_a_file_that_is_too_large_is_not_kept() -> None:
    for large in (multipart([bytes(5_000_000)]), (200, DICOM, bytes(5_000_000))):
        assert _file_of(SmallArchive(faults=[large]), 1_000_000) is None


def test_an_answer_that_inflates_takes_no_more_memory_than_a_file_may() -> None:
    body = gzip.compress(gzip.compress(bytes(1 << 28)))
    archive = SmallArchive(faults=[(200, {**DICOM, "Content-Encoding": "gzip, gzip"}, body)])
    with serve(archive):
        tracemalloc.start()
        assert _archive(archive.url).get_file(PATH, 1_000_000) is None
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 1 << 24


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_asked_again(status: int) -> None:
    archive = SmallArchive([FILM], faults=[(status, {}, b""), (status, {}, b"")])
    assert _file_of(archive) == encoded(FILM)
    assert len(archive.requests) == 3


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
    ("fault", "said"),
    [
        ((401, {}, b""), "check user, password or token"),
        ((403, {}, b""), "check user, password or token"),
        ((404, {}, b""), "status 404"),
        ((302, {"Location": "http://elsewhere/"}, b""), "sends elsewhere"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "something else than JSON"),
    ],
)
def test_what_will_not_pass_is_said_at_once(fault: tuple[int, dict[str, str], bytes], said: str) -> None:
    archive = SmallArchive(faults=[fault])
    with serve(archive), pytest.raises(ArchiveError, match=said):
        _archive(archive.url).get_json("studies")
    assert len(archive.requests) == 1


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
        ({"pacs_token": "t0ken"}, "Bearer t0ken"),
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
        found = _archive(archive.url, Settings(pacs_ca=certificate)).get_json("studies").value
        assert len(found) == 1
