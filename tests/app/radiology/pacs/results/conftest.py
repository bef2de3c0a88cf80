"""A service whose collection follows an archive, and that may write back to it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from pydicom.uid import XRayAngiographicImageStorage

from app.application import create_app
from app.radiology.archive import Archive
from tests.access import AS_ADMIN
from tests.app.radiology.pacs.conftest import COLLECTION, Home, opened
from tests.dicom_films import make_film, uid
from tests.orthanc import OrthancServer

QUERY: Final = 1
PRIOR: Final = 2
OTHER: Final = 3
SEVERAL: Final = 5
# The film that is searched with, one of another study of the same patient, and three of other patients; the
# last has two frames.
FILMS: Final = (
    make_film(QUERY, study=1, patient=1, PatientName="Müller^Jörg"),
    make_film(PRIOR, study=2, patient=1, StudyDate="20240113"),
    make_film(OTHER, study=3, patient=3),
    make_film(4, study=4, patient=4),
    make_film(
        SEVERAL,
        study=5,
        patient=5,
        SOPClassUID=XRayAngiographicImageStorage,
        Modality="XA",
        NumberOfFrames=2,
        PixelData=2 * make_film(SEVERAL).PixelData,
    ),
)
RESULTS: Final = f"/v1/collections/{COLLECTION}/studies/{uid('study', 1)}/results"
BODY: Final = {"sop": uid("film", QUERY), "hits": [uid("film", PRIOR), uid("film", OTHER)]}


@contextmanager
def serving(home: Home, url: str, *forms: str, **settings: Any) -> Iterator[TestClient]:
    changed = home.settings.model_validate(
        {**home.settings.model_dump(), "pacs_url": url, "pacs_write_back": forms, **settings}
    )
    with TestClient(create_app(changed), "http://localhost", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory, orthanc_server: OrthancServer) -> Iterator[Home]:
    with opened(tmp_path_factory.mktemp("followed")) as home:
        orthanc_server.store(FILMS)
        assert home.sync(Archive(orthanc_server.dicom_web)).run().taken == len(FILMS)
        orthanc_server.clear()
        yield home


@pytest.fixture(scope="module")
def _service(_home: Home, orthanc_server: OrthancServer) -> Iterator[TestClient]:
    with serving(_home, orthanc_server.dicom_web, "capture", "report", "selection") as client:
        yield client


@pytest.fixture
def followed(_home: Home, orthanc: OrthancServer) -> Home:
    """The collection after a sync with the archive."""
    orthanc.store(FILMS)
    return _home


@pytest.fixture
def client(_service: TestClient, followed: Home) -> TestClient:
    """Everything may be written back."""
    return _service


def write(
    client: TestClient, body: dict[str, Any] = BODY, headers: Mapping[str, str] = MappingProxyType({})
) -> Any:
    return client.post(RESULTS, json=body, headers={**AS_ADMIN, **headers})
