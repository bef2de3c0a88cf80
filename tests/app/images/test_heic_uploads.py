"""HEIC photographs over HTTP, with the extra `heic`."""

from tests.app.conftest import Indexed
from tests.app.images.test_writes import IMAGES, put, serve
from tests.heic_files import PLAIN
from tests.needed import needed_module
from training.imaging.images import decode_image


def test_an_uploaded_photograph_is_kept_and_shown(own: Indexed) -> None:
    needed_module("pi_heif", '`pip install -c constraints.txt ".[heic]"`')
    with serve(own) as client:
        assert put(client, "photograph", PLAIN).status_code == 201
        assert client.get(f"{IMAGES}/photograph").json()["media_type"] == "image/heic"
        content = client.get(f"{IMAGES}/photograph/content")
        assert (content.status_code, content.headers["content-type"]) == (200, "image/heic")
        shown = client.get(f"{IMAGES}/photograph/rendition", headers={"accept": "image/png"})
        assert shown.headers["content-type"] == "image/png"
        assert decode_image(shown.content).tobytes() == decode_image(PLAIN).tobytes()
        assert client.get(f"{IMAGES}/photograph/thumbnail").status_code == 200
