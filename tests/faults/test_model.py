"""Random operations on a catalogue, compared one by one with an oracle in memory."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.filters.grammar import parse_filter
from index.generations.models import create_collection
from index.search.request import SearchRequest
from index.writes.live import change_image, put_images, remove_images
from tests.faults.made import (
    DIGEST,
    VIEWS,
    begin_world,
    made_record,
    made_text,
    made_upload,
    open_world,
    picture_name,
    stored_vector,
    vector_of,
    without_picture,
)
from tests.faults.oracle import (
    Oracle,
    check_collection,
    check_files,
    check_image,
    check_nothing_else,
    check_page,
)
from tests.index.homes import remove_collection
from training.common.manifest import Record

OPERATIONS = int(os.environ.get("RECOQUEST_TEST_OPERATIONS", "20000"))
COLLECTIONS = ("a", "b")
MAX_IMAGES = 60


class World:
    """Two engines on one catalogue, as two processes would have, beside what must be in it."""

    def __init__(self, home: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self._home = home
        self._engines = [begin_world(home, *COLLECTIONS), open_world(home)]
        self.oracles = {name: Oracle() for name in COLLECTIONS}
        self._versions = 0

    def step(self) -> None:
        """Do one operation, drawn at random, in a collection through an engine."""
        operations: dict[Callable[[SearchEngine, str], None], int] = {
            self.insert: 14,
            self.replace: 8,
            self.repeat: 4,
            self.describe: 6,
            self.change: 10,
            self.remove: 14,
            self.search: 20,
            self.search_filtered: 14,
            self.search_texts: 6,
            self.look: 4,
        }
        rare: dict[Callable[[SearchEngine, str], None], int] = {
            self.restart: 6,
            self.save: 6,
            self.begin_anew: 1,
            self.compare: 2,
        }
        chosen = rare if self.draw.random() < 0.01 else operations
        (operation,) = self.draw.choices(list(chosen), weights=list(chosen.values()))
        operation(self.draw.choice(self._engines), self.draw.choice(COLLECTIONS))

    def insert(self, engine: SearchEngine, collection: str) -> None:
        """Put in a few images, of which some may be there."""
        ids = self.draw.sample(range(MAX_IMAGES), self.draw.randint(1, 3))
        self._put(engine, collection, [f"image {number}" for number in ids])

    def replace(self, engine: SearchEngine, collection: str) -> None:
        """Give an image another picture, and other words about it."""
        if image_id := self._any(collection):
            self._put(engine, collection, [image_id])

    def repeat(self, engine: SearchEngine, collection: str) -> None:
        """Put in an image as it is."""
        if image_id := self._any(collection):
            held = self.oracles[collection].images[image_id]
            upload = made_upload(held.record, held.picture)
            assert put_images(engine.home, engine.active(collection), [upload]) == {image_id: "unchanged"}

    def describe(self, engine: SearchEngine, collection: str) -> None:
        """Replace what is said of an image whose picture stays."""
        if image_id := self._any(collection):
            record = made_record(image_id, self._version())
            picture = self.oracles[collection].images[image_id].picture
            upload = without_picture(made_upload(record, picture))
            assert put_images(engine.home, engine.active(collection), [upload]) == {image_id: "replaced"}
            self.oracles[collection].put(record, picture)

    def change(self, engine: SearchEngine, collection: str) -> None:
        """Change one text, and the metadata, of an image."""
        if image_id := self._any(collection):
            version, text = self._version(), made_text(self.draw)

            def change(record: Record) -> Record:
                texts = (*record.texts[:-1], text) if version % 2 else record.texts
                return replace(record, texts=texts, metadata={**record.metadata, "version": version})

            vectors = {text: stored_vector(text)}
            active = engine.active(collection)
            assert change_image(engine.home, active, image_id, change, vectors).outcome == "replaced"
            held = self.oracles[collection].images[image_id]
            self.oracles[collection].put(change(held.record), held.picture)

    def remove(self, engine: SearchEngine, collection: str) -> None:
        """Remove a few images, of which some may not be there."""
        ids = [f"image {n}" for n in self.draw.sample(range(MAX_IMAGES), self.draw.randint(1, 3))]
        removed = remove_images(engine.home, collection, ids)
        assert sorted(removed) == sorted(i for i in ids if self.oracles[collection].remove(i))

    def search(self, engine: SearchEngine, collection: str) -> None:
        """Find the nearest images, over two pages."""
        query, k = vector_of(f"query {self.draw.randrange(50)}"), self.draw.choice((1, 5, 100))
        wanted = self.oracles[collection].ranked(query)
        active = engine.active(collection)
        assert active.count == len(wanted)
        page = engine.search(active, query, SearchRequest(k=k))
        check_page(page, wanted, k)
        if page.next_cursor is not None:
            following = engine.search(active, query, SearchRequest(k=100, cursor=page.next_cursor))
            both = [hit.id for hit in (*page.hits, *following.hits)]
            assert sorted(both) == sorted(name for name, _ in wanted)

    def search_filtered(self, engine: SearchEngine, collection: str) -> None:
        """Find the nearest images that pass a filter."""
        view, bound = self.draw.choice(VIEWS), self.draw.randrange(self._versions + 1)
        query, k = vector_of(f"query {self.draw.randrange(50)}"), self.draw.choice((1, 5, 100))
        condition = parse_filter({"field": "view", "eq": view})
        newer = parse_filter({"field": "version", "gte": bound})
        oracle = self.oracles[collection]
        if not oracle.images:
            return
        wanted = oracle.ranked(query, lambda record: record.metadata["view"] == view)
        active = engine.active(collection)
        check_page(engine.search(active, query, SearchRequest(k=k, filter=condition)), wanted, k)
        since = oracle.ranked(query, lambda record: int(str(record.metadata["version"])) >= bound)
        check_page(engine.search(active, query, SearchRequest(k=k, filter=newer)), since, k)

    def search_texts(self, engine: SearchEngine, collection: str) -> None:
        """Find the texts nearest to one."""
        text = made_text(self.draw)
        page = engine.search(engine.active(collection), vector_of(text), SearchRequest(k=200, target="texts"))
        found = sorted((hit.id, round(hit.score, 4)) for hit in page.hits)
        scores = [
            (name, round(float(vector_of(own) @ vector_of(text)), 4))
            for name, held in self.oracles[collection].images.items()
            for own in held.record.texts
        ]
        assert [name for name, _ in found] == sorted(name for name, _ in scores)
        for (_, ours), (_, theirs) in zip(found, sorted(scores), strict=True):
            assert abs(ours - theirs) < 2e-4

    def look(self, engine: SearchEngine, collection: str) -> None:
        """Read everything of one image."""
        if image_id := self._any(collection):
            check_image(engine, collection, self.oracles[collection].images[image_id])

    def restart(self, engine: SearchEngine, collection: str) -> None:
        """Open the engine again."""
        engine.close()
        self._engines[self._engines.index(engine)] = open_world(self._home)

    def save(self, engine: SearchEngine, collection: str) -> None:
        """Write the snapshot that the next start reads."""
        engine.save_snapshot(collection)

    def begin_anew(self, engine: SearchEngine, collection: str) -> None:
        """Remove the collection and make an empty one of the same name."""
        remove_collection(engine, collection)
        create_collection(engine.home, collection, model=DIGEST)
        self.oracles[collection] = Oracle()

    def compare(self, engine: SearchEngine, collection: str) -> None:
        """Compare all that there is."""
        for name, oracle in self.oracles.items():
            check_collection(engine, name, oracle)
        check_files(engine, *self.oracles.values())
        check_nothing_else(engine)

    def close(self) -> None:
        """Close both engines."""
        for engine in self._engines:
            engine.close()

    def _put(self, engine: SearchEngine, collection: str, ids: list[str]) -> None:
        oracle = self.oracles[collection]
        versions = {image_id: self._version() for image_id in ids}
        made = [(made_record(name, number), picture_name(name, number)) for name, number in versions.items()]
        wanted = {name: "replaced" if name in oracle.images else "created" for name in ids}
        uploads = [made_upload(record, picture) for record, picture in made]
        assert put_images(engine.home, engine.active(collection), uploads) == wanted
        for record, picture in made:
            oracle.put(record, picture)

    def _any(self, collection: str) -> str | None:
        return self.draw.choice(sorted(self.oracles[collection].images) or [None])

    def _version(self) -> int:
        self._versions += 1
        return self._versions


def _operate(home: Path, operations: int, seed: int) -> None:
    world = World(home, seed)
    try:
        for number in range(operations):
            try:
                world.step()
            except Exception as error:
                error.add_note(f"in operation {number}")
                raise
        world.compare(open_world(home), COLLECTIONS[0])
    finally:
        world.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("operations", [200, pytest.param(800, marks=pytest.mark.slow)])
def test_random_operations_give_what_an_oracle_gives(home: Path, operations: int) -> None:
    _operate(home, operations, seed=4)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_the_same_of_many_operations(home: Path) -> None:
    _operate(home, OPERATIONS, seed=5)
