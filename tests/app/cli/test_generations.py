"""`recoquest reindex`, `generations`, `activate` and `rollback`, as a user types them."""

import shutil
from pathlib import Path

import pytest

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
