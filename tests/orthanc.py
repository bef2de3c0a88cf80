"""An Orthanc server for tests, on loopback with a folder of its own."""

import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from pydicom.dataset import Dataset

from tests.dicom_films import encoded

INSTALL: Final = "`apt-get install orthanc orthanc-dicomweb orthanc-gdcm` brings Orthanc and its plugins"
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 30
_PLUGINS: Final = ("libOrthancDicomWeb.so", "libOrthancGdcm.so")
_PLUGIN_FOLDERS: Final = (Path("/usr/share/orthanc/plugins"), Path("/usr/lib/orthanc/plugins"))


@dataclass(frozen=True)
class OrthancPrograms:
    """The server's program and the plugins that tests load."""

    server: Path
    plugins: tuple[Path, ...]


@dataclass(frozen=True)
class OrthancServer:
    """A running server.

    Attributes:
        url: Root of its REST API, without a slash at its end.
        http: Client of that API.
        dicom_port: Port of its DIMSE services; its AE title is ORTHANC, and it takes films of any.
        process: Process id.
    """

    url: str
    http: httpx.Client
    dicom_port: int
    process: int

    @property
    def dicom_web(self) -> str:
        """Root of DICOMweb: QIDO-RS, WADO-RS and STOW-RS."""
        return f"{self.url}/dicom-web"

    def store(self, films: Iterable[Dataset | bytes]) -> list[str]:
        """Store films, whole files or data sets; return Orthanc's names of the instances."""
        return [self._store(film if isinstance(film, bytes) else encoded(film)) for film in films]

    def delete(self, uid: str) -> None:
        """Delete the study, series or instance of a DICOM UID."""
        found = self.http.post("/tools/lookup", content=uid).raise_for_status().json()
        assert found, f"Orthanc has nothing of the UID {uid}"
        for resource in found:
            self.http.delete(resource["Path"]).raise_for_status()

    def instances(self) -> set[str]:
        """Return the SOP Instance UIDs of all that is stored."""
        listed = self.http.get("/instances", params={"expand": ""}).raise_for_status().json()
        return {instance["MainDicomTags"]["SOPInstanceUID"] for instance in listed}

    def clear(self) -> None:
        """Delete everything, and the log of changes."""
        for patient in self.http.get("/patients").raise_for_status().json():
            self.http.delete(f"/patients/{patient}").raise_for_status()
        self.http.delete("/changes").raise_for_status()

    def _store(self, film: bytes) -> str:
        answer = self.http.post("/instances", content=film, headers={"Content-Type": "application/dicom"})
        name: str = answer.raise_for_status().json()["ID"]
        return name


def find_orthanc() -> OrthancPrograms | None:
    """Return what is installed; None where the server or a plugin is missing."""
    server = shutil.which("Orthanc") or shutil.which("Orthanc", path="/usr/sbin:/usr/local/sbin")
    for folder in _PLUGIN_FOLDERS:
        plugins = tuple(folder / name for name in _PLUGINS)
        if server is not None and all(plugin.is_file() for plugin in plugins):
            return OrthancPrograms(Path(server), plugins)
    return None


@contextmanager
def serve_orthanc(
    programs: OrthancPrograms,
    settings: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    auth: tuple[str, str] | None = None,
) -> Iterator[OrthancServer]:
    """Run a server that nobody but this machine reaches, until the block ends.

    Args:
        programs: From `find_orthanc`.
        settings: More of Orthanc's configuration, which goes before what tests have.
        folder: Folder of its database, kept; None: a new one, removed at the end.
        auth: User and password with which `http` signs in, where `settings` asks for them.
    """
    own = Path(tempfile.mkdtemp(prefix="recoquest-orthanc-")) if folder is None else folder
    port, dicom_port = free_port(), free_port()
    configuration = _configuration(own, programs, port, dicom_port) | dict(settings or {})
    (own / "orthanc.json").write_text(json.dumps(configuration), encoding="utf-8")
    try:
        with (own / "log.txt").open("ab") as log:
            server = subprocess.Popen([programs.server, own / "orthanc.json"], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=url, auth=auth, timeout=60, trust_env=False) as http:
                _wait_until_up(http, server)
                yield OrthancServer(url, http, dicom_port, server.pid)
        finally:
            # Orthanc takes seconds to end by itself, and what it leaves in a folder of its own is removed.
            (server.kill if folder is None else server.terminate)()
            try:
                server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        if folder is None:
            shutil.rmtree(own, ignore_errors=True)


def _configuration(folder: Path, programs: OrthancPrograms, port: int, dicom_port: int) -> dict[str, Any]:
    return {
        "Name": "recoquest-tests",
        "StorageDirectory": str(folder / "db"),
        "IndexDirectory": str(folder / "db"),
        "Plugins": [str(plugin) for plugin in programs.plugins],
        "HttpPort": port,
        "DicomPort": dicom_port,
        "DicomAet": "ORTHANC",
        "DicomCheckCalledAet": False,
        "DicomAlwaysAllowStore": True,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": False,
        "OverwriteInstances": True,
        "StableAge": 1,
        "DicomWeb": {
            "Enable": True,
            "Root": "/dicom-web/",
            "EnableWado": True,
            "WadoRoot": "/wado",
            "StudiesMetadata": "Full",
            "SeriesMetadata": "Full",
        },
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_up(http: httpx.Client, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        assert server.poll() is None, "Orthanc ended at its start"
        assert time.monotonic() < deadline, "Orthanc did not start"
        try:
            if http.get("/system").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            # Not there yet.
            pass
        time.sleep(0.1)
