"""Uploaded photographs are stored and handed out without what they say; HEIC files as well."""

from collections.abc import Callable

import pytest

from tests.app.conftest import Indexed, serve
from tests.app.images.test_writes import IMAGES, files_of, put
from tests.heic_files import PLAIN
from tests.needed import needed_module
from tests.training.imaging.metadata_files import FILES, SECRET, jpeg, png
from training.imaging.images import decode_image


@pytest.mark.slow
def test_nothing_that_was_uploaded_hands_out_its_metadata(own: Indexed) -> None:
    before = files_of(own)
    with serve(own) as client:
        for name, make in FILES.items():
            content = make()
            assert put(client, name, content).status_code == 201
            image = client.get(f"{IMAGES}/{name}").json()
            answer = client.get(f"{IMAGES}/{name}/content")
            assert answer.headers["etag"] == f'"{image["sha256"]}"'
            assert SECRET not in answer.content
            assert SECRET not in client.get(f"{IMAGES}/{name}/thumbnail").content
            assert decode_image(answer.content).tobytes() == decode_image(content).tobytes()
            assert put(client, name, content).json()["status"] == "unchanged"
            assert put(client, name, answer.content).json()["status"] == "unchanged"
    assert files_of(own) == before + len(FILES)


def test_a_setting_keeps_what_the_file_says_and_it_goes_with_the_next_upload_without(
    make_indexed: Callable[..., Indexed],
) -> None:
    kept = make_indexed(keep_metadata=True)
    with serve(kept) as client:
        assert put(client, "photograph", jpeg()).status_code == 201
        assert client.get(f"{IMAGES}/photograph/content").content == jpeg()
    without = kept.with_settings(keep_metadata=False)
    with serve(without) as client:
        feedback = IMAGES.replace("/images", "/feedback")
        judgement = {"query": {"like": [{"text": "a dog"}]}, "hit": "photograph", "relevant": True}
        assert client.post(feedback, json=judgement).status_code == 200
        files = files_of(without)
        assert put(client, "photograph", jpeg()).json()["status"] == "replaced"
        assert files_of(without) == files
        assert SECRET not in client.get(f"{IMAGES}/photograph/content").content
        assert client.get(feedback).json()["relevant"] == 1


@pytest.mark.parametrize(
    "content", [png().replace(b"prVt", b"PrVt"), jpeg().replace(b"\xff\xdb", b"\xff\xf7", 1), jpeg()[:900]]
)
def test_a_file_that_cannot_be_followed_is_refused_in_a_sentence(own: Indexed, content: bytes) -> None:
    before = files_of(own)
    with serve(own) as client:
        answer = put(client, "broken", content)
        assert answer.status_code == 415
        assert answer.json()["detail"].endswith(".")
    assert files_of(own) == before


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
