"""Models of the hub whose main revision has pickled weights alone, from a small hub on loopback."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.training.conversion import folders
from tests.training.conversion.small_hub import NAME, Request, SmallHub, served
from training.models.bundle import read_bundle

REF = "refs/pr/66"
MAIN = {"config.json": b'{"of": "main"}', "tokenizer.json": b"{}", "pytorch_model.bin": b"pickled"}
CONVERTED = {**MAIN, "config.json": b'{"of": "old"}', "model.safetensors": b"weights"}
FOLDER = (
    "import sys; from app.cli.errors import ended; from training.models.pretrained.folder import hub_folder; "
    "ended(lambda: print(hub_folder(sys.argv[1])))"
)
COMMAND = "from app.cli.main import run; run()"


@pytest.fixture
def hub() -> Iterator[SmallHub]:
    """The model with the converter's pull request."""
    with served(SmallHub({"main": MAIN, REF: CONVERTED}, [Request(66)])) as hub:
        yield hub


class Client:
    """Processes that know one hub, with a cache of their own."""

    def __init__(self, hub: SmallHub, home: Path) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    def run(self, code: str, *arguments: str, offline: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            env={**self._environment, "HF_HUB_OFFLINE": "1" if offline else "0"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def folder(self, *, offline: bool = False) -> tuple[dict[str, bytes], str]:
        """Files of the model's folder, and what was said."""
        done = self.run(FOLDER, NAME, offline=offline)
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.strip())
        return {file.name: file.read_bytes() for file in folder.iterdir()}, done.stderr

    def refused(self, *, offline: bool = False) -> str:
        done = self.run(FOLDER, NAME, offline=offline)
        assert done.returncode == 1, done.stdout
        return done.stderr


@pytest.fixture
def client(hub: SmallHub, tmp_path: Path) -> Client:
    return Client(hub, tmp_path / "hf")


@pytest.mark.slow
def test_weights_are_those_of_the_hub_s_conversion_and_stay_the_same_without_the_hub(
    hub: SmallHub, client: Client
) -> None:
    first, said = client.folder()
    assert first == {**_without_weights(MAIN), "model.safetensors": b"weights"}
    assert said == (
        f"{NAME} has no safetensors on main: its weights are those of the hub's converter, {REF}, "
        f"commit {hub.commit(REF)}.\n"
    )
    assert not [asked for asked in hub.asked if asked.startswith("POST") or asked.endswith(".bin")]
    hub.revisions[REF] = {**CONVERTED, "model.safetensors": b"others"}
    hub.asked.clear()
    assert client.folder() == (first, "")
    assert not [asked for asked in hub.asked if asked.endswith("/discussions")]
    hub.asked.clear()
    assert client.folder(offline=True) == (first, "")
    assert hub.asked == []


@pytest.mark.slow
def test_a_new_commit_of_main_is_looked_for_again(hub: SmallHub, client: Client) -> None:
    client.folder()
    hub.revisions["main"] = {**MAIN, "config.json": b'{"of": "newer"}'}
    files, said = client.folder()
    assert files["config.json"] == b'{"of": "newer"}'
    assert hub.commit(REF) in said
    hub.revisions["main"] = {**MAIN, "pytorch_model.bin": b"trained further"}
    assert "has no safetensors on main, nor in an open pull request" in client.refused()


@pytest.mark.slow
def test_links_that_lead_nowhere_are_made_again(hub: SmallHub, client: Client, tmp_path: Path) -> None:
    first, _ = client.folder()
    for weights in (tmp_path / "hf" / "hub").rglob("model.safetensors"):
        weights.resolve().unlink()
        weights.unlink()
    assert "could not be fetched" in client.refused(offline=True)
    assert client.folder()[0] == first


SHARDS = {
    "model-00001-of-00002.safetensors": b"one",
    "model-00002-of-00002.safetensors": b"two",
    "model.safetensors.index.json": b"{}",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("revisions", "weights"),
    [
        ({REF: {**MAIN, **SHARDS}}, SHARDS),
        ({"refs/pr/7": {**CONVERTED, "model.safetensors": b"1st"}}, {"model.safetensors": b"weights"}),
        ({"main": {**MAIN, "model.safetensors": b"its own"}}, {"model.safetensors": b"its own"}),
    ],
    ids=["shards", "the latest of two", "of main"],
)
def test_weights_are_shards_or_the_latest_or_those_of_main(
    revisions: Mapping[str, Mapping[str, bytes]], weights: Mapping[str, bytes], hub: SmallHub, client: Client
) -> None:
    hub.revisions |= revisions
    hub.requests[:] = [Request(7), Request(66)] if "refs/pr/7" in revisions else [Request(66)]
    files, said = client.folder()
    assert files == {**_without_weights(MAIN), **weights}
    listed = [asked for asked in hub.asked if asked.endswith("/discussions")]
    assert bool(listed) == bool(said) == ("main" not in revisions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "converted"),
    [
        pytest.param(None, CONVERTED, id="none"),
        pytest.param(Request(66, author="somebody"), CONVERTED, id="of-another-author"),
        pytest.param(Request(66, status="closed"), CONVERTED, id="closed"),
        pytest.param(Request(66), {**CONVERTED, "pytorch_model.bin": b"other"}, id="of-other-weights"),
        pytest.param(Request(66), MAIN, id="empty"),
    ],
)
def test_without_a_conversion_a_sentence_says_where_the_commands_are(
    request_: Request | None, converted: Mapping[str, bytes], hub: SmallHub, client: Client
) -> None:
    hub.requests[:] = [] if request_ is None else [request_]
    hub.revisions[REF] = converted
    assert client.refused() == (
        f"recoquest: {NAME} has no safetensors on main, nor in an open pull request of the hub's converter, "
        "and pickled weights are never loaded: download and convert them by the commands under `Pickled "
        "weights` in docs/guides/encoders.md.\n"
    )
    assert not [asked for asked in hub.asked if asked.startswith("POST") or "safetensors" in asked]


@pytest.mark.slow
def test_a_hub_that_tells_no_digests_proves_no_conversion(hub: SmallHub, client: Client) -> None:
    hub.tells_digests = False
    assert "nor in an open pull request of the hub's converter" in client.refused()


@pytest.mark.slow
def test_the_readme_s_model_becomes_a_bundle(hub: SmallHub, client: Client, tmp_path: Path) -> None:
    folders.clip(tmp_path / "clip")
    files = {file.name: file.read_bytes() for file in (tmp_path / "clip").iterdir()}
    hub.revisions["main"] = {**_without_weights(files), "pytorch_model.bin": b"never read"}
    hub.revisions[REF] = {**hub.revisions["main"], "model.safetensors": files["model.safetensors"]}
    for out, offline in (("online", False), ("offline", True)):
        done = client.run(COMMAND, "bundle", NAME, "--out", str(tmp_path / out), offline=offline)
        assert done.returncode == 0, done.stderr
        assert (hub.commit(REF) in done.stderr) != offline
    made = [read_bundle(tmp_path / out) for out in ("online", "offline")]
    assert made[0].name == "clip-vit-base-patch32"
    assert made[0].digest == made[1].digest


def _without_weights(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if "model." not in name}
