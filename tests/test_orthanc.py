"""The archive that tests share keeps films as they are, and forgets them after each test."""

import io

import numpy as np
import pydicom

from tests.dicom_films import draw, encoded, make_film
from tests.orthanc import OrthancServer


def test_a_film_comes_back_as_it_was(orthanc: OrthancServer) -> None:
    film = make_film(1, view="LL")
    [name] = orthanc.store([film])
    back = pydicom.dcmread(io.BytesIO(orthanc.http.get(f"/instances/{name}/file").content))
    assert back == film
    np.testing.assert_array_equal(back.pixel_array, draw(1))
    assert orthanc.instances() == {film.SOPInstanceUID}
    orthanc.delete(film.StudyInstanceUID)
    assert not orthanc.instances()


def test_films_of_a_study_share_it_and_a_view_is_a_series(orthanc: OrthancServer) -> None:
    orthanc.store([make_film(1, study=7), make_film(2, study=7, view="LL"), encoded(make_film(3))])
    counted = orthanc.http.get("/statistics").json()
    assert (counted["CountPatients"], counted["CountStudies"]) == (2, 2)
    assert (counted["CountSeries"], counted["CountInstances"]) == (3, 3)


def test_each_test_begins_with_an_empty_archive(orthanc: OrthancServer) -> None:
    assert not orthanc.instances()
    assert orthanc.http.get("/changes").json()["Changes"] == []
