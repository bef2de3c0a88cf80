"""The whole way with both clients, against a running service."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import httpx2
import numpy as np
import pytest
from PIL import Image

from recoquest_client import (
    AccessError,
    AsyncClient,
    Client,
    NewImage,
    NotFoundError,
    PreconditionError,
    ProblemError,
    UploadProgress,
)
from tests.access import ADMIN_KEY
from tests.app.conftest import COLLECTION, Indexed
from tests.app.images.test_uploads import picture


class Waiting:
    """An AsyncClient that is called as a Client is."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            found = getattr(self._client, name)(*arguments, **keywords)
            if isinstance(found, AsyncIterator):
                return self._runner.run(collected(found))
            return self._runner.run(found)

        return call


async def collected(found: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in found]


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Literal["sync", "async"]:
    found: Literal["sync", "async"] = request.param
    return found


@pytest.fixture
def client(service: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Either client, with its key from the environment."""
    monkeypatch.setenv("RECOQUEST_KEY", ADMIN_KEY)
    if kind == "sync":
        with Client(service) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        waiting = AsyncClient(service)
        yield Waiting(waiting, runner)
        runner.run(waiting.close())


def test_a_collection_is_begun_filled_searched_changed_and_removed(
    client: Any, kind: str, tmp_path: Any
) -> None:
    name = f"ward-{kind}"
    assert client.create_collection(name, same_model_as=COLLECTION).count == 0
    file = tmp_path / "first.png"
    file.write_bytes(picture(1))
    odd = "a b #7?%41"
    images = [
        NewImage("first", file, {"texts": ["a red square"], "metadata": {"age": 64}}),
        NewImage(odd, picture(2), {"texts": ["two dogs"], "report": "No effusion."}),
        NewImage("none", b"no image"),
        *(NewImage(f"more-{number}", picture(10 + number)) for number in range(70)),
    ]
    told: list[UploadProgress] = []
    uploaded = client.upload(name, images, progress=told.append)
    assert [one.id for one in uploaded.results] == [image.id for image in images]
    (refused,) = uploaded.refused
    assert (refused.id, refused.problem.type) == ("none", "urn:recoquest:not-an-image")
    assert (uploaded.written, told[-1].images, told[-1].sent) == (72, 73, told[-1].total)

    # A picture finds itself, from a path and from bytes, also by an id that needs escapes.
    assert client.search(name, images=[file], limit=1).hits[0].id == "first"
    (found,) = client.search(name, images=[picture(2)], limit=1, with_=["report"]).hits
    assert found.report == "No effusion."
    assert client.search(name, "two dogs", keywords="dogs", limit=3).hits[0].matched.text == "two dogs"
    assert client.search(name, like=odd, limit=2).hits[0].id != odd
    by_example = client.search(name, like=[{"text": "a dog"}], unlike=["first"], min_score=-1, limit=100)
    assert {hit.id for hit in by_example.hits} == {one.id for one in uploaded.results} - {"first", "none"}
    filtered = client.search(name, filter={"field": "age", "eq": 64})
    assert ([hit.id for hit in filtered.hits], filtered.count) == (["first"], 1)
    pages = list(client.search_pages(name, "a boat", limit=30))
    assert [page.has_more for page in pages] == [page.next_cursor is not None for page in pages]
    assert [len(page.hits) for page in pages] == [30, 30, 12]
    assert len({hit.id for page in pages for hit in page.hits}) == 72
    good, bad = client.search_batch(name, [{"text": "a boat", "limit": 2}, {"like": ["missing"]}])
    assert (len(good.page.hits), good.problem) == (2, None)
    assert (bad.page, bad.problem.status) == (None, 404)

    assert [image.id for image in client.images(name, page_size=30)][:2] == ["first", odd]
    assert len(list(client.images(name, page_size=30))) == client.count(name) == 72
    assert client.facets(name, field="age").fields[0].minimum == 64
    assert client.facets(name, filter={"field": "age", "eq": 65}).count == 0
    assert client.facets(name, keywords="dogs").count == client.count(name, keywords="dogs") > 0
    known = client.image(name, odd)
    assert (known.report, known.etag) == ("No effusion.", uploaded.results[1].etag)
    assert client.content(name, odd) == picture(2)
    assert Image.open(io.BytesIO(client.rendition(name, odd, size=20))).size == (20, 15)
    assert Image.open(io.BytesIO(client.thumbnail(name, odd))).format == "WEBP"

    changed = client.update(name, odd, etag=known.etag, report=None, labels=["Edema"])
    assert changed.etag != known.etag
    with pytest.raises(PreconditionError) as raised:
        client.update(name, odd, etag=known.etag, labels=[])
    assert raised.value.etag == changed.etag
    assert (client.image(name, odd).report, client.image(name, odd).labels) == (None, ("Edema",))
    assert client.put(name, NewImage("new", picture(3)), only_new=True).status == "created"
    with pytest.raises(PreconditionError):
        client.put(name, NewImage("new", picture(4)), only_new=True)
    assert client.judge(name, "first", True, text="a red square", like=["new"]).relevant is True
    assert client.judgements(name).relevant == 1
    assert client.put_case_list(name, "taught", "Taught").images == 0
    for image in ("first", odd, "new"):
        client.save_case(name, "taught", image, f"note on {image}")
    client.remove_case(name, "taught", "new")
    kept = [(one.image.id, one.note) for one in client.cases(name, "taught", page_size=1)]
    assert kept == [("first", "note on first"), (odd, f"note on {odd}")]
    (listed,), (first, _) = client.case_lists(name), client.cases(name, "taught")
    assert (listed.id, listed.images) == ("taught", 2)
    client.save_case(name, "taught", "first", "another note", etag=first.etag)
    assert client.put_case_list(name, "taught", "Teaching", etag=listed.etag).name == "Teaching"
    with pytest.raises(PreconditionError, match="another note"):
        client.save_case(name, "taught", "first", "late", etag=first.etag)
    with pytest.raises(PreconditionError, match="named 'Teaching'"):
        client.put_case_list(name, "taught", "Late", etag=listed.etag)
    with zipfile.ZipFile(io.BytesIO(client.teaching_file(name, "taught"))) as archive:
        assert archive.namelist() == ["images/0001.png", "images/0002.png", "cases.csv", "README.txt"]
    client.delete_case_list(name, "taught")
    assert client.case_lists(name) == ()
    client.delete(name, "new")
    with pytest.raises(NotFoundError, match="new"):
        client.image(name, "new")
    assert client.erase(name, ["more-1"]).erased == ("more-1",)
    client.delete_collection(name)
    with pytest.raises(NotFoundError):
        client.collection(name)


def test_a_part_of_an_image_searches_and_a_map_tells_what_matched(client: Client) -> None:
    first = next(iter(client.images(COLLECTION))).id
    box = {"x": 0.25, "y": 0.1, "width": 0.4, "height": 0.5}
    like = [{"id": first, "box": box}]
    page = client.search(COLLECTION, like=like, limit=3)
    assert len(page.hits) == 3
    found = client.similarity_map(COLLECTION, page.hits[0].id, like=like)
    assert found.id == page.hits[0].id
    assert np.shape(found.values) == (found.height, found.width)
    assert np.mean(found.values) == pytest.approx(page.hits[0].cosine, abs=1e-3)


def test_collections_models_generations_and_the_audit_trail_are_listed(client: Any) -> None:
    assert COLLECTION in [collection.name for collection in client.collections()]
    overview = client.collection(COLLECTION)
    assert (overview.count, overview.generation.number) == (24, 1)
    (generation,) = client.generations(COLLECTION)
    assert (generation.state, generation.images) == ("active", 24)
    assert client.activate(COLLECTION, 1).state == "active"
    with pytest.raises(ProblemError) as raised:
        client.roll_back(COLLECTION)
    assert raised.value.type.startswith("urn:recoquest:")
    (model,) = client.models()
    card = client.model(model.digest)
    assert COLLECTION in [one.collection for one in card.generations]
    events = client.audit(action="search", page_size=2)
    assert all(event.action == "search" for event in events)
    whole = list(client.audit(page_size=3))
    assert [event.sequence for event in whole] == sorted({event.sequence for event in whole})
    assert whole[0].hash


def test_vectors_of_texts_and_images_find_what_these_find(client: Any, tmp_path: Any) -> None:
    file = tmp_path / "some.png"
    file.write_bytes(picture(1))
    made = client.embed(COLLECTION, ["a boat"], images=[file, picture(1)])
    assert [one.index for one in made.data] == [0, 1, 2]
    text, by_path, by_bytes = (one.embedding for one in made.data)
    assert by_path == by_bytes != text
    assert np.linalg.norm(text) == pytest.approx(1, abs=1e-3)
    assert made.digest == client.models()[0].digest
    for vector, asked in ((text, {"text": "a boat"}), (by_path, {"images": [file]})):
        found = client.search(COLLECTION, like=[{"vector": list(vector)}])
        assert [hit.id for hit in found.hits] == [hit.id for hit in client.search(COLLECTION, **asked).hits]


def test_a_link_shows_a_picture_without_a_key(client: Any, service: str) -> None:
    first = next(iter(client.images(COLLECTION))).id
    link = client.link(COLLECTION, first, rendition="content", expires_in=60)
    assert httpx2.get(service + link.url).content == client.content(COLLECTION, first)
    whole = httpx2.get(service + client.link(COLLECTION, first).url)
    rendition = Image.open(io.BytesIO(client.rendition(COLLECTION, first)))
    assert Image.open(io.BytesIO(whole.content)).size == rendition.size
    small = httpx2.get(service + client.link(COLLECTION, first, rendition={"size": 8}).url)
    assert max(Image.open(io.BytesIO(small.content)).size) == 8
    assert client.link(COLLECTION, first, rendition="thumbnail").expires > link.expires


def test_a_collection_has_another_name_and_aliases(client: Any, kind: str) -> None:
    old, new, alias = f"old-{kind}", f"new-{kind}", f"current-{kind}"
    client.create_collection(old, same_model_as=COLLECTION)
    assert client.rename_collection(old, new).name == new
    made = client.put_alias(alias, new, only_new=True)
    assert client.collection(alias).name == new
    with pytest.raises(PreconditionError):
        client.put_alias(alias, COLLECTION, only_new=True)
    with pytest.raises(ValueError, match="either etag or only_new"):
        client.put_alias(alias, COLLECTION, etag=made.etag, only_new=True)
    moved = client.put_alias(alias, COLLECTION, etag=made.etag)
    assert moved in client.aliases()
    with pytest.raises(PreconditionError):
        client.delete_alias(alias, etag=made.etag)
    client.delete_alias(alias, etag=moved.etag)
    assert alias not in [one.alias for one in client.aliases()]
    client.put_alias(old, new)
    assert client.collection(old).name == new
    client.delete_collection(new)
    assert client.aliases() == ()


def test_a_job_is_begun_followed_to_its_end_and_listed(client: Any, indexed: Indexed) -> None:
    job = client.start_job("tidy")
    assert client.job(job.id).state == "queued"
    other = client.start_job("duplicates", collection=COLLECTION)
    assert client.cancel_job(other.id).state == "cancelled"
    assert client.wait(other.id).has_ended
    with pytest.raises(TimeoutError):
        client.wait(job.id, timeout=0.2)
    client.cancel_job(job.id)
    assert [one.id for one in client.jobs(page_size=1)][:2] == [other.id, job.id]
    assert [one.state for one in client.stream(job.id)] == ["cancelled"]


def test_a_key_that_does_not_hold_is_refused(service: str) -> None:
    with Client(service, "wrong") as client, pytest.raises(AccessError) as raised:
        client.collections()
    assert (raised.value.status, raised.value.help) == (401, "/docs/problems#wrong-key")
