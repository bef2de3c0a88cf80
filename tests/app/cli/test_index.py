"""`recoquest index`, `reindex`, `generations`, `activate`, `rollback`, `models` and `aliases`, as typed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.app.commands import indexed_work, outcome, refusal
from tests.app.conftest import COLLECTION, Indexed, make_bundle
from tests.e2e.work import Work
from tests.index.samples import CpuAsGpu, make_manifest, make_records
from tests.index.samples import make_bundle as make_named_bundle
from training.common.manifest import Record, read_manifest, write_manifest

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def index(own: Indexed) -> Command:
    """Runs `recoquest index` with options; gives the exit code, and all that is said."""

    def run(*options: str, collection: str = COLLECTION) -> tuple[int, str]:
        fixed = ("--bundle", own.bundle, "--data", own.manifest.folder)
        return outcome("index", collection, *fixed, *options, "--home", own.settings.home, "--device", "cpu")

    return run


def _count(own: Indexed, collection: str) -> int:
    with own.engine() as engine:
        result = engine.collection(collection)
        assert result.generation is not None
        return result.count


def test_damaged_images_leave_the_rest_searchable(own: Indexed, index: Command) -> None:
    paths = [own.manifest.image_path(record) for record in own.manifest.records]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    paths[2].unlink()
    code, message = index(collection="other")
    assert code == 0, message
    counts = "21 taken (21 added, 0 updated, 0 unchanged) + 3 refused (lines: 1, images: 2)"
    assert f"24 lines found = {counts}" in message
    assert _count(own, "other") == 21
    code, message = index("--strict", collection="third")
    assert (code, "3 lines and images could not be used" in message) == (1, True)
    assert _count(own, "third") == 21
    code, message = index("--max-rejected", "0.05", collection="fourth")
    assert (code, "more than the share of 0.05" in message) == (1, True)


def test_a_damaged_image_keeps_no_other_encoder_from_taking_over(own: Indexed, index: Command) -> None:
    own.manifest.image_path(own.manifest.records[3]).write_bytes(b"broken")
    other = make_bundle(own.settings.home.parent / "other", seed=4)
    code, message = index("--bundle", str(other))
    assert code == 0, message
    assert "Refused, and in the collection as they were before: 1 (image-3)." in message
    with own.engine() as engine:
        assert engine.collection(COLLECTION).generation == 2
    assert _count(own, COLLECTION) == 24


def test_what_moves_is_said(own: Indexed, index: Command) -> None:
    folder = own.manifest.folder
    write_manifest(folder, [replace(one, id=f"new-{one.id}") for one in read_manifest(folder).records])
    code, message = index("--prune")
    assert code == 0, message
    assert "24 taken (0 added, 24 moved, 0 updated, 0 unchanged)" in message
    assert "ids: 24 (image-0 to new-image-0, image-1 to new-image-1, " in message
    trail = own.run("audit", "export", "-", "--collection", COLLECTION).stdout
    events = [json.loads(line) for line in trail.splitlines()]
    (moved,) = [event for event in events if event["details"].get("moved") and event["action"] == "change"]
    assert moved["ids"][:2] == ["image-0", "new-image-0"]
    assert moved["object_count"] == 48


@pytest.mark.parametrize(
    ("limit", "code"),
    [("12", 1), ("13", 0), ("50%", 1), ("55 %", 0), ("100%", 0), ("0.5", 2), ("120%", 2), ("-1", 2)],
)
def test_a_limit_is_a_number_or_a_share(own: Indexed, index: Command, limit: str, code: int) -> None:
    write_manifest(own.manifest.folder, own.manifest.records[:11])
    result, message = index("--prune", f"--prune-limit={limit}")
    assert result == code, message
    if code < 2:
        assert _count(own, COLLECTION) == (24 if code else 11)


def test_without_a_limit_a_pruning_of_half_stops(own: Indexed, index: Command) -> None:
    write_manifest(own.manifest.folder, own.manifest.records[:11])
    result, message = index("--prune")
    assert result == 1
    assert "--prune would remove 13 of the 24 images" in message
    assert "--prune-limit 13" in message


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an indexed collection, to be copied."""
    return indexed_work(tmp_path_factory.mktemp("indexed"), "c").folder


@pytest.fixture
def work(indexed: Path, tmp_path: Path) -> Work:
    return Work(Path(shutil.copytree(indexed, tmp_path / "work")))


def test_a_view_is_chosen_and_explained(work: Work) -> None:
    lines = work.run("index", "c", "--explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["*", "ivf", "mapped", "gpu"]
    assert "a scan takes less than a millisecond" in lines[0]
    # So few are scanned all the same, and found.
    for name in ("ivf", "mapped"):
        lines = work.run("index", "c", "--view", name, "--explain").stdout.splitlines()
        assert [line.split()[1] for line in lines if line.startswith("*")] == [name]
    lines = work.run("index", "c", "--view", "auto", "--explain").stdout.splitlines()
    assert lines[0].startswith("* exact")


@pytest.mark.slow
def test_one_limit_of_pixels_holds_for_the_command_and_the_setting(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = work.folder / "large" / "images"
    images.mkdir(parents=True)
    draw = np.random.default_rng(0)
    records = []
    for name, ending in (("photograph", "jpg"), ("drawing", "png")):
        picture = Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8)).resize((800, 640))
        picture.save(images / f"{name}.{ending}")
        records.append(Record(name, f"images/{name}.{ending}", "train", texts=(name,)))
    write_manifest(work.folder / "large", records)
    # As recipes set it: a JPEG file is decoded at an eighth of its size here.
    make_named_bundle(work.folder / "scaled", name="scaled", image={"size": 32, "scaled_decoding": True})
    run = ("index", "large", "--bundle", "scaled", "--data", "large", "--max-rejected", "1")
    done = work.run(*run, "--max-image-pixels", "100000")
    assert "2 lines found = 1 taken (1 added" in done.stdout
    assert "0.512 megapixels; the limit is 0.1 megapixels (RECOQUEST_MAX_IMAGE_PIXELS)" in done.stderr
    monkeypatch.setenv("RECOQUEST_MAX_IMAGE_PIXELS", "100000")
    assert "+ 1 refused" in work.run(*run).stdout
    assert "2 taken (1 added" in work.run(*run, "--max-image-pixels", "1000000").stdout


def test_images_that_were_indexed_are_in_the_audit_trail(work: Work) -> None:
    make_manifest(work.folder / "fewer", make_records(12))
    work.run("index", "c", "--bundle", "tiny", "--data", "fewer", "--prune")
    events = [json.loads(line) for line in work.run("audit", "export", "-").stdout.splitlines()]
    names = [f"image-{number:03}" for number in range(15)]
    created = [event for event in events if event["action"] == "create"]
    assert [name for event in created for name in event["ids"]] == names
    assert created[0]["details"] == {"operation": "index", "created": 15}
    (pruned,) = (event for event in events if event["action"] == "delete")
    assert pruned["ids"] == names[12:]


def test_the_recall_that_was_measured_is_explained(tmp_path: Path) -> None:
    work = indexed_work(tmp_path, "c", images=70)
    assert "recall" not in work.run("index", "c", "--explain").stdout
    explained = work.run("index", "c", "--view", "ivf", "--explain").stdout.splitlines()[-1]
    # Of few vectors all are looked at.
    assert explained.startswith("recall@10 of ")
    assert "1.000 on the mean, 1.0 of the lowest" in explained


def test_a_gpu_that_is_not_there_is_chosen_for_other_machines_and_named(work: Work) -> None:
    output = work.run("index", "c", "--view", "gpu", "--device", "cpu")
    assert not output.stdout
    assert "choice is kept, but on this machine 'c' is searched by the view 'exact'" in output.stderr
    assert "the device is set to cpu" in output.stderr
    lines = work.run("index", "c", "--explain", "--device", "cpu").stdout.splitlines()
    assert lines[0].startswith("* exact")
    assert "the device is set to cpu" in lines[-1]
    result = work.run("search", "c", "--like", "image-003", "-k", "3", "--json")
    assert "image-0" in result.stdout


def test_the_gpu_that_is_named_is_taken(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    def gpu(name: str) -> CpuAsGpu:
        named.append(name)
        return CpuAsGpu()

    monkeypatch.setattr("app.engine.Gpu", gpu)
    done = work.run("index", "c", "--view", "gpu", "--device", "cuda:7", "--explain")
    assert named == ["cuda:7"]
    assert "The choice is kept" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("* gpu")
    assert "takes 0.00 GiB of the GPU's memory, and 0.50 GiB while rows" in done.stdout


def test_mistakes_are_one_sentence(work: Work) -> None:
    assert "There is no collection 'other'" in work.run("index", "other", "--explain", code=1).stderr
    assert "'flat'" in work.run("index", "c", "--view", "flat", code=2).stderr


@pytest.fixture(scope="module")
def with_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an indexed collection and another bundle, to be copied."""
    folder = tmp_path_factory.mktemp("indexed")
    for seed, name in enumerate(("first", "second")):
        make_named_bundle(folder / name, seed=seed, name=name)
    make_manifest(folder / "data", make_records(20)[:15])
    Work(folder).run("index", "c", "--bundle", "first", "--data", "data")
    return folder


@pytest.fixture
def changing(with_two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    # No service runs that would have to load anything.
    monkeypatch.setenv("RECOQUEST_REFRESH_S", "0.01")
    return Work(Path(shutil.copytree(with_two, tmp_path / "work")))


@pytest.mark.slow
def test_a_model_is_changed_and_taken_back(changing: Work) -> None:
    built = changing.run("reindex", "c", "--bundle", "second")
    assert "generation 2 by second is complete; 15 images were embedded." in built.stdout
    assert "Generation 2 against 1" in built.stdout
    assert "To search in it: recoquest activate c 2" in built.stderr
    assert "0 images were embedded" in changing.run("reindex", "c", "--bundle", "second").stdout
    assert "now searched in generation 2 by second" in changing.run("activate", "c", 2).stdout
    changing.run("rollback", "c")
    at_once = changing.run("reindex", "c", "--bundle", "second", "--activate")
    assert "now searched in generation 2 by second" in at_once.stdout
    assert "To search in it" not in at_once.stderr
    make_manifest(changing.folder / "data", make_records(20))
    changing.run("index", "c", "--bundle", "second", "--data", "data")
    back = changing.run("rollback", "c")
    assert "lacks 5 of the 20 images" in back.stderr
    assert "They are embedded first." in back.stderr
    assert "Images that it lacked and that were embedded first: 5." in back.stdout
    assert "now searched in generation 1 by first" in back.stdout
    listed = changing.run("generations", "c").stdout
    assert "retired" in listed
    assert "Generation 2 against 1" in listed
    changing.run("generations", "c", "--drop", 2)
    assert "retired" not in changing.run("generations", "c").stdout


@pytest.mark.slow
def test_indexing_with_another_bundle_changes_the_model_and_names_the_old_one_that_stays(
    changing: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.generations.activation._IN_USE_SECONDS", 0)
    make_named_bundle(changing.folder / "third", seed=2, name="third")
    output = changing.run("index", "c", "--bundle", "second", "--data", "data").stdout
    assert "15 taken (0 added, 0 updated, 15 unchanged)" in output
    assert output.endswith("c is now searched in generation 2 by second.\n")
    assert "searched" not in changing.run("index", "c", "--bundle", "second", "--data", "data").stdout
    output = changing.run("index", "c", "--bundle", "third", "--data", "data").stdout
    drop = "recoquest generations c --drop 1"
    kept = f"c: old generation 1 stays, since a person activated it. To drop it: {drop}"
    assert output.endswith(f"c is now searched in generation 3 by third.\n{kept}\n")
    assert kept in changing.run("tidy").stdout
    assert "first" not in changing.run("generations", "c", "--drop", 1).stdout
    assert "stays" not in changing.run("tidy").stdout


def test_mistakes_of_generations_are_one_sentence(changing: Work) -> None:
    for arguments, words in (
        (("activate", "c", 9), "has no generation 9; it has 1."),
        (("rollback", "c"), "cannot be rolled back"),
        (("generations", "c", "--drop", 1), "it stays"),
        (("reindex", "nothing", "--bundle", "second"), "There is no collection 'nothing'"),
        (("reindex", "c", "--bundle", "nowhere"), "There is no bundle at"),
    ):
        assert words in refusal(changing, *arguments)
    assert "exactly one of --bundle, --model and --generation" in changing.run("reindex", "c", code=2).stderr


def test_a_model_is_registered_shown_and_embedded_with(changing: Work) -> None:
    registered = changing.run("models", "register", "second")
    digest = registered.stdout.strip()
    assert f"recoquest reindex COLLECTION --model {digest[:12]}" in registered.stderr
    assert changing.run("models", "register", "second").stdout == registered.stdout
    listed = json.loads(changing.run("models", "list", "--json").stdout)
    assert [(model["name"], model["collections"]) for model in listed] == [("second", []), ("first", ["c"])]
    table = changing.run("models", "list").stdout
    assert "rsum 12.5" in table
    assert digest[:12] in table
    card = json.loads(changing.run("models", "show", digest[:12], "--json").stdout)
    assert (card["digest"], card["generations"]) == (digest, [])

    assert changing.run("models", "register", "second", "--home", "empty").stdout == registered.stdout
    # The model stays when the folder is removed.
    (changing.folder / "second").rename(changing.folder / "elsewhere")
    changing.run("reindex", "c", "--model", digest[:12], "--activate")
    shown = changing.run("models", "show", "second").stdout
    assert "image: resnet" in shown
    cells = [cell.strip() for cell in shown.splitlines()[-2].split("│")]
    assert cells[1:6] == ["c", "2", "active", "15", "0"]


def test_mistakes_of_models_are_one_sentence(changing: Work) -> None:
    (changing.folder / "second" / "model.safetensors").write_bytes(b"")
    for arguments, words in (
        (("models", "register", "nowhere"), "There is no bundle at"),
        (("models", "register", "second"), "is not the file that the bundle was made with"),
        (("models", "show", "third"), "There is no registered model 'third'; there are: 'first'."),
        (("reindex", "c", "--model", ""), "There is no registered model ''"),
    ):
        assert words in refusal(changing, *arguments)
    assert len(json.loads(changing.run("models", "list", "--json").stdout)) == 1
    both = changing.run("reindex", "c", "--model", "first", "--generation", 1, code=2).stderr
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
    changes = [event for event in events if event["details"]["operation"].startswith("aliases")]
    assert [(event["action"], event["collection"], event["details"]) for event in changes] == [
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
        assert words in refusal(wards, "aliases", *arguments)
    assert _aliases(wards) == {"current": "ward"}
