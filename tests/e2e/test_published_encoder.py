"""A published encoder is searched, judged, retrained by LoRA and replaced, by commands as users type them."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.e2e.work import Done, Work, service
from tests.training.conversion import folders

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (40, 60, 200), "yellow": (220, 200, 50)}
HITS = 10
# The way from a folder of images to a model that has learned from judgements, and back.
COMMANDS = """
import folder photos --table photos.csv
bundle openai/clip-vit-base-patch32 --out clip
index photos --bundle clip --data photos
search photos "a dog in the snow"
serve
feedback add photos dog12.jpg --text "a dog in the snow" --relevant
feedback add photos cat31.jpg --text "a dog in the snow" --not-relevant
feedback add photos cat31.jpg --text "a cat on a sofa" --relevant
retrain photos --out again --promote --set train.lora.rank=8
rollback photos
"""


def _draw_photos(folder: Path) -> None:
    """Photographs of one colour each, and a table of captions that name it."""
    random = np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    lines = ["image,text"]
    for number in range(80):
        name = list(COLOURS)[number % len(COLOURS)]
        pixels = np.array(COLOURS[name]) * random.uniform(0.7, 1.1) + random.normal(0, 25, (12, 12, 3))
        picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).resize((96, 80))
        picture.save(folder / "photos" / f"{number:02}.jpg")
        lines.append(f"{number:02}.jpg,a {name} picture")
    (folder / "photos.csv").write_text("\n".join(lines) + "\n")


def _shown(words: str) -> list[str]:
    """The arguments of the first command that begins with these words."""
    found = re.search(rf"^({re.escape(words)}.*)$", COMMANDS, re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def _run(work: Work, words: str, instead: Mapping[str, str] | None = None, *, code: int = 0) -> Done:
    """Run a command with some names replaced."""
    names = instead or {}
    return work.run(*(names.get(part, part) for part in _shown(words)), code=code)


def _indexed(folder: Path, *, captions: bool) -> Work:
    """Photographs in a collection that a published encoder searches."""
    work = Work(folder)
    _draw_photos(work.folder)
    folders.clip(work.folder / "folder")
    imported = _shown("import folder photos --table")
    assert imported[-2] == "--table"
    work.run(*(imported if captions else imported[:-2]))
    _run(work, "bundle", {"openai/clip-vit-base-patch32": "folder"})
    _run(work, "index photos --bundle clip")
    return work


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_clip_folder_becomes_a_model_that_has_learned_from_forty_judgements(tmp_path: Path) -> None:
    work = _indexed(tmp_path / "work", captions=True)
    for name in COLOURS:
        arguments = {"a dog in the snow": f"a {name} picture"}
        assert ".jpg" in _run(work, 'search photos "a dog', arguments).stdout
        _judge(work, name)
    done = _run(work, "retrain photos --out again --promote --set train.lora.rank=8")
    result = json.loads((work.folder / "again" / "result.json").read_text())
    assert result["verdict"] == "waiting", done.stdout
    judgement = result["judgement"]
    assert judgement["after"] > judgement["before"]
    assert judgement["verdict"] == "not enough to judge"
    assert "photos is now searched in generation 2" in work.run("activate", "photos", 2).stdout
    assert "now searched in generation 1" in _run(work, "rollback photos").stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_photographs_without_captions_teach_by_relevant_hits_of_two_searches(tmp_path: Path) -> None:
    work = _indexed(tmp_path / "work", captions=False)
    retraining = "retrain photos --out again --promote --set train.lora.rank="
    _judge(work, "red")
    done = _run(work, retraining, code=1)
    assert "judge hits of at least two different searches as relevant" in done.stderr
    assert "0 that do not go together" in done.stdout
    for name in COLOURS:
        _judge(work, name, among=80)
    # Three images alone judge.
    done = work.run(*_shown(retraining))
    assert json.loads((work.folder / "again" / "result.json").read_text())["verdict"] == "waiting", (
        done.stdout
    )
    lines = (work.folder / "again" / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
    assert losses
    assert min(losses) > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_indexed_photographs_are_served(tmp_path: Path) -> None:
    work = _indexed(tmp_path / "work", captions=False)
    assert _shown("serve") == ["serve"]
    with service(work) as (client, _):
        asked = {"text": "a red picture", "limit": 3}
        found = client.post("/v1/collections/photos/search", json=asked)
        assert found.status_code == 200, found.text
        page = json.loads(work.run("search", "photos", asked["text"], "-k", 3, "--json").stdout)
        hits = found.json()["hits"]
        assert [hit["id"] for hit in hits] == [hit["id"] for hit in page["hits"]]
        said = {"query": {"text": asked["text"]}, "hit": hits[0]["id"], "relevant": True}
        assert client.post("/v1/collections/photos/feedback", json=said).status_code == 200
        assert "<html" in client.get("/").text


def _judge(work: Work, name: str, among: int = HITS) -> None:
    """Say of the first hits whether they have the colour that was searched for, up to ten of either kind."""
    text = f"a {name} picture"
    page = json.loads(work.run("search", "photos", text, "-k", among, "--json").stdout)
    counts = {True: 0, False: 0}
    for hit in page["hits"]:
        right = list(COLOURS)[int(hit["id"].removesuffix(".jpg")) % len(COLOURS)] == name
        counts[right] += 1
        if counts[right] > HITS // 2 and among > HITS:
            continue
        example = "dog12.jpg" if right else 'cat31.jpg --text "a dog'
        _run(work, f"feedback add photos {example}", _instead(hit["id"], text))


def _instead(image: str, text: str) -> dict[str, str]:
    return {"dog12.jpg": image, "cat31.jpg": image, "a dog in the snow": text}
