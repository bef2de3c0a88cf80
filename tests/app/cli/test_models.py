"""`recoquest models`, as a user types it."""

import json
from pathlib import Path

import pytest

from tests.e2e.work import Work
from tests.index.samples import make_bundle, make_manifest, make_records


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    for seed, name in enumerate(("first", "second")):
        make_bundle(tmp_path / name, seed=seed, name=name)
    make_manifest(tmp_path / "data", make_records(15))
    monkeypatch.setenv("RECOQUEST_REFRESH_S", "0.01")
    work = Work(tmp_path)
    work.run("index", "c", "--bundle", "first", "--data", "data")
    return work


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


def test_mistakes_are_one_sentence(work: Work) -> None:
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
