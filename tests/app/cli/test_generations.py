"""`recoquest reindex`, `generations`, `activate`, `rollback`, `models` and `aliases`, as they are typed."""

import json
import shutil
from pathlib import Path

import pytest

from tests.app.commands import indexed_work
from tests.e2e.work import Work
from tests.index.samples import make_bundle, make_manifest, make_records


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an indexed collection and another bundle, to be copied."""
    folder = tmp_path_factory.mktemp("indexed")
    for seed, name in enumerate(("first", "second")):
        make_bundle(folder / name, seed=seed, name=name)
    make_manifest(folder / "data", make_records(20)[:15])
    Work(folder).run("index", "c", "--bundle", "first", "--data", "data")
    return folder


@pytest.fixture
def work(indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    # No service runs that would have to load anything.
    monkeypatch.setenv("RECOQUEST_REFRESH_S", "0.01")
    return Work(Path(shutil.copytree(indexed, tmp_path / "work")))


@pytest.mark.slow
def test_a_model_is_changed_and_taken_back(work: Work) -> None:
    built = work.run("reindex", "c", "--bundle", "second")
    assert "generation 2 by second is complete; 15 images were embedded." in built.stdout
    assert "Generation 2 against 1" in built.stdout
    assert "To search in it: recoquest activate c 2" in built.stderr
    assert "0 images were embedded" in work.run("reindex", "c", "--bundle", "second").stdout
    assert "now searched in generation 2 by second" in work.run("activate", "c", 2).stdout
    work.run("rollback", "c")
    at_once = work.run("reindex", "c", "--bundle", "second", "--activate")
    assert "now searched in generation 2 by second" in at_once.stdout
    assert "To search in it" not in at_once.stderr
    make_manifest(work.folder / "data", make_records(20))
    work.run("index", "c", "--bundle", "second", "--data", "data")
    back = work.run("rollback", "c")
    assert "lacks 5 of the 20 images" in back.stderr
    assert "They are embedded first." in back.stderr
    assert "Images that it lacked and that were embedded first: 5." in back.stdout
    assert "now searched in generation 1 by first" in back.stdout
    listed = work.run("generations", "c").stdout
    assert "retired" in listed
    assert "Generation 2 against 1" in listed
    work.run("generations", "c", "--drop", 2)
    assert "retired" not in work.run("generations", "c").stdout


@pytest.mark.slow
def test_indexing_with_another_bundle_changes_the_model_and_names_the_old_one_that_stays(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.generations.activation._IN_USE_SECONDS", 0)
    make_bundle(work.folder / "third", seed=2, name="third")
    said = work.run("index", "c", "--bundle", "second", "--data", "data").stdout
    assert "15 taken (0 added, 0 updated, 15 unchanged)" in said
    assert said.endswith("c is now searched in generation 2 by second.\n")
    assert "searched" not in work.run("index", "c", "--bundle", "second", "--data", "data").stdout
    said = work.run("index", "c", "--bundle", "third", "--data", "data").stdout
    drop = "recoquest generations c --drop 1"
    kept = f"c: old generation 1 stays, since a person activated it. To drop it: {drop}"
    assert said.endswith(f"c is now searched in generation 3 by third.\n{kept}\n")
    assert kept in work.run("tidy").stdout
    assert "first" not in work.run("generations", "c", "--drop", 1).stdout
    assert "stays" not in work.run("tidy").stdout


def test_mistakes_are_one_sentence(work: Work) -> None:
    for arguments, words in (
        (("activate", "c", 9), "has no generation 9; it has 1."),
        (("rollback", "c"), "cannot be rolled back"),
        (("generations", "c", "--drop", 1), "it stays"),
        (("reindex", "nothing", "--bundle", "second"), "There is no collection 'nothing'"),
        (("reindex", "c", "--bundle", "nowhere"), "There is no bundle at"),
    ):
        done = work.run(*arguments, code=1)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert "exactly one of --bundle, --model and --generation" in work.run("reindex", "c", code=2).stderr


def test_a_model_is_registered_shown_and_embedded_with(work: Work) -> None:
    registered = work.run("models", "register", "second")
    digest = registered.stdout.strip()
    assert f"recoquest reindex COLLECTION --model {digest[:12]}" in registered.stderr
    assert work.run("models", "register", "second").stdout == registered.stdout
    listed = json.loads(work.run("models", "list", "--json").stdout)
    assert [(model["name"], model["collections"]) for model in listed] == [("second", []), ("first", ["c"])]
    table = work.run("models", "list").stdout
    assert "rsum 12.5" in table
    assert digest[:12] in table
    card = json.loads(work.run("models", "show", digest[:12], "--json").stdout)
    assert (card["digest"], card["generations"]) == (digest, [])

    assert work.run("models", "register", "second", "--home", "empty").stdout == registered.stdout
    # Whatever becomes of the folder, the model is there.
    (work.folder / "second").rename(work.folder / "elsewhere")
    work.run("reindex", "c", "--model", digest[:12], "--activate")
    shown = work.run("models", "show", "second").stdout
    assert "image: resnet" in shown
    cells = [cell.strip() for cell in shown.splitlines()[-2].split("│")]
    assert cells[1:6] == ["c", "2", "active", "15", "0"]


def test_mistakes_of_models_are_one_sentence(work: Work) -> None:
    (work.folder / "second" / "model.safetensors").write_bytes(b"")
    for arguments, words in (
        (("models", "register", "nowhere"), "There is no bundle at"),
        (("models", "register", "second"), "is not the file that the bundle was made with"),
        (("models", "show", "third"), "There is no registered model 'third'; there are: 'first'."),
        (("reindex", "c", "--model", ""), "There is no registered model ''"),
    ):
        done = work.run(*arguments, code=1)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert len(json.loads(work.run("models", "list", "--json").stdout)) == 1
    both = work.run("reindex", "c", "--model", "first", "--generation", 1, code=2).stderr
    assert "exactly one of --bundle, --model and --generation" in " ".join(both.replace("│", " ").split())


@pytest.fixture
def wards(tmp_path: Path) -> Work:
    return indexed_work(tmp_path, "ward", "ward-7", images=4)


def _aliases(wards: Work) -> dict[str, str]:
    return dict(json.loads(wards.run("aliases", "list", "--json").stdout))


def test_an_alias_is_set_swapped_listed_and_deleted(wards: Work) -> None:
    assert _aliases(wards) == {}
    assert wards.run("aliases", "set", "current", "ward").stdout == "current leads to ward.\n"
    assert _aliases(wards) == {"current": "ward"}
    swapped = wards.run("aliases", "swap", "current", "ward", "ward-7").stdout
    assert swapped == "current leads to ward-7, and no more to ward.\n"
    assert _aliases(wards) == {"current": "ward-7"}
    back = wards.run("aliases", "set", "current", "ward").stdout
    assert back == "current leads to ward, and no more to ward-7.\n"
    assert "current" in wards.run("aliases", "list").stdout
    deleted = wards.run("aliases", "delete", "current").stdout
    assert deleted == "current is no alias any more; ward stays.\n"
    assert _aliases(wards) == {}
    wards.run("audit", "export", "trail.ndjson")
    events = [json.loads(line) for line in (wards.folder / "trail.ndjson").read_text().splitlines()]
    assert [
        (event["action"], event["collection"], event["details"])
        for event in events
        if event["details"]["operation"].startswith("aliases")
    ] == [
        ("change", "ward", {"operation": "aliases set", "alias": "current", "led_to": None}),
        ("change", "ward-7", {"operation": "aliases swap", "alias": "current", "led_to": "ward"}),
        ("change", "ward", {"operation": "aliases set", "alias": "current", "led_to": "ward-7"}),
        ("delete", "ward", {"operation": "aliases delete", "alias": "current"}),
    ]
    assert {event["actor"]["kind"] for event in events} == {"command"}


def test_mistakes_of_aliases_are_one_sentence_and_change_nothing(wards: Work) -> None:
    wards.run("aliases", "set", "current", "ward")
    for arguments, words in (
        (("set", "current", "nowhere"), "nowhere"),
        (("set", "ward-7", "ward"), "'ward-7' is the name of a collection"),
        (("set", "no such name", "ward"), "cannot name an alias"),
        (("swap", "current", "ward-7", "ward"), "leads to 'ward' and not to 'ward-7'"),
        (("swap", "current", "ward", "nowhere"), "nowhere"),
        (("swap", "next", "ward", "ward-7"), "There is no alias 'next'"),
        (("delete", "next"), "recoquest aliases list"),
    ):
        done = wards.run("aliases", *arguments, code=1)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert _aliases(wards) == {"current": "ward"}
