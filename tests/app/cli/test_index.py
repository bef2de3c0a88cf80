"""`recoquest index`: damaged images, moved files and limits of a pruning, as a user sees them."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.app.conftest import COLLECTION, Indexed, make_bundle
from training.common.errors import RecoquestError
from training.common.manifest import read_manifest, write_manifest

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def index(own: Indexed) -> Command:
    """Runs `recoquest index` with options; gives the exit code, and all that is said."""

    def run(*options: str, collection: str = COLLECTION) -> tuple[int, str]:
        fixed = ["--bundle", str(own.bundle), "--data", str(own.manifest.folder)]
        home = ["--home", str(own.settings.home), "--device", "cpu"]
        result = CliRunner().invoke(build(), ["index", collection, *fixed, *options, *home])
        assert result.exception is None or isinstance(result.exception, RecoquestError | SystemExit)
        return result.exit_code, result.output + str(result.exception or "")

    return run


def _count(own: Indexed, collection: str) -> int:
    with own.engine() as engine:
        found = engine.collection(collection)
        assert found.generation is not None
        return found.count


def test_damaged_images_leave_the_rest_searchable(own: Indexed, index: Command) -> None:
    paths = [own.manifest.image_path(record) for record in own.manifest.records]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    paths[2].unlink()
    code, said = index(collection="other")
    assert code == 0, said
    assert (
        "24 lines found = 21 taken (21 added, 0 updated, 0 unchanged) + 3 refused (lines: 1, images: 2)"
        in said
    )
    assert _count(own, "other") == 21
    result = index("--strict", collection="third")
    assert result[0] == 1
    assert "3 lines and images could not be used" in result[1]
    assert _count(own, "third") == 21
    code, said = index("--max-rejected", "0.05", collection="fourth")
    assert code == 1
    assert "more than the share of 0.05" in said


def test_a_damaged_image_keeps_no_other_encoder_from_taking_over(own: Indexed, index: Command) -> None:
    own.manifest.image_path(own.manifest.records[3]).write_bytes(b"broken")
    other = make_bundle(own.settings.home.parent / "other", seed=4)
    code, said = index("--bundle", str(other))
    assert code == 0, said
    assert "Refused, and in the collection as they were before: 1 (image-3)." in said
    with own.engine() as engine:
        assert engine.collection(COLLECTION).generation == 2
    assert _count(own, COLLECTION) == 24


def test_what_moves_is_said(own: Indexed, index: Command) -> None:
    folder = own.manifest.folder
    write_manifest(folder, [replace(one, id=f"new-{one.id}") for one in read_manifest(folder).records])
    code, said = index("--prune")
    assert code == 0, said
    assert "24 taken (0 added, 24 moved, 0 updated, 0 unchanged)" in said
    assert "ids: 24 (image-0 to new-image-0, image-1 to new-image-1, " in said
    result = CliRunner().invoke(
        build(), ["audit", "export", "-", "--collection", COLLECTION, "--home", str(own.settings.home)]
    )
    events = [json.loads(line) for line in result.stdout.splitlines()]
    (moved,) = [event for event in events if event["details"].get("moved") and event["action"] == "change"]
    assert moved["ids"][:2] == ["image-0", "new-image-0"]
    assert moved["object_count"] == 48


@pytest.mark.parametrize(
    ("limit", "code"),
    [("12", 1), ("13", 0), ("50%", 1), ("55 %", 0), ("100%", 0), ("0.5", 2), ("120%", 2), ("-1", 2)],
)
def test_a_limit_is_a_number_or_a_share(own: Indexed, index: Command, limit: str, code: int) -> None:
    write_manifest(own.manifest.folder, own.manifest.records[:11])
    found, said = index("--prune", f"--prune-limit={limit}")
    assert found == code, said
    if code < 2:
        assert _count(own, COLLECTION) == (24 if code else 11)


def test_without_a_limit_a_pruning_of_half_stops(own: Indexed, index: Command) -> None:
    write_manifest(own.manifest.folder, own.manifest.records[:11])
    found, said = index("--prune")
    assert found == 1
    assert "--prune would remove 13 of the 24 images" in said
    assert "--prune-limit 13" in said
