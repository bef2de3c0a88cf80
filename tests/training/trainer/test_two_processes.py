"""Two processes train as one process does on the whole batch."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.runs import assert_same_checkpoints, lines
from tests.training.trainer import two_processes
from tests.training.trainer.scenes import run, write_scenes
from training.models.bundle import read_bundle
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError

# The two processes take twenty seconds; `test_contract` has two that compute one loss.
pytestmark = pytest.mark.slow

Found = list[dict[str, Any]]
# A step changes a weight by up to 1e-2; Adam makes rounding in a tiny gradient up to 1e-5 of it.
SAME = 1e-4


@pytest.fixture(scope="module")
def folder(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes, by scenario."""
    folder = tmp_path_factory.mktemp("two")
    write_scenes(two_processes.repeated(scenes), repeated=True)
    (write_scenes(two_processes.broken(scenes)) / "images/3.png").write_bytes(b"not an image")
    two_processes.run_in_two(folder, scenes)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    """What each process has found, by scenario."""
    return [torch.load(folder / f"{rank}.pt") for rank in range(two_processes.PROCESSES)]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run / "checkpoints/last.pt").task


@pytest.mark.parametrize("scenario", two_processes.EXACT)
def test_weights_and_figures_are_those_of_one_process(
    folder: Path, scenes: Path, tmp_path: Path, scenario: str
) -> None:
    data = two_processes.repeated(scenes) if scenario == "repeated" else scenes
    run(two_processes.EXACT[scenario], data, tmp_path / "one")
    ours, theirs = weights(folder / scenario), weights(tmp_path / "one")
    assert ours.keys() == theirs.keys()
    assert load_checkpoint(folder / scenario / "checkpoints/last.pt").position.step == 3
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=SAME, msg=name)
    for line, expected in zip(lines(folder / scenario), lines(tmp_path / "one"), strict=True):
        assert line.keys() == expected.keys()
        # A rank may turn on the last bit of a cosine, and processes differ in the pairs that they leave out.
        loss_alone = expected["kind"] == "validation" or scenario == "texts"
        measured = {"loss"} if loss_alone else expected.keys() - {"samples_per_second"}
        figures = sorted(measured & expected.keys() - {"kind"})
        assert [line[key] for key in figures] == pytest.approx([expected[key] for key in figures], rel=1e-4)


def test_gradients_are_averaged_and_one_that_some_lack_counts_as_zero_there(found: Found) -> None:
    for of_process in found:
        for overlap, passes in (("True", 1), ("False", 2)):
            both, one, none, wide = of_process["gradients"][overlap]
            assert torch.equal(both, torch.full((2, 3), 2.0 * passes))
            assert torch.equal(one, torch.full((2, 3), 0.5 * passes))
            assert none is None
            assert torch.equal(wide, torch.arange(4.0, dtype=torch.float64) / 2 * passes)
        # Sums begin while the backward pass runs, unless there are several.
        assert of_process["gradients"]["begun"] == [1, 0, 0]


def test_chunks_change_nothing(folder: Path) -> None:
    ours, theirs = weights(folder / "chunked"), weights(folder / "exact")
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=SAME, msg=name)


def test_the_process_with_the_least_memory_decides_for_all(folder: Path, found: Found) -> None:
    for of_process in found:
        assert of_process["scarce"] == ([10**9], 3)
    # All stream where images do not fit the memory of one.
    assert load_checkpoint(folder / "little_memory/checkpoints/last.pt").position.step == 3


def test_all_processes_return_the_figures_of_the_bundle(folder: Path, found: Found) -> None:
    metrics = read_bundle(folder / "straight/bundle").metrics
    assert metrics["rsum"] > 0
    assert found[0]["straight"] == found[1]["straight"] == metrics


def test_a_stop_of_one_stops_all_and_a_resumed_run_is_bit_equal(folder: Path, found: Found) -> None:
    for of_process in found:
        assert "after step 2 of 6" in of_process["stopped"] or of_process["stopped"] == ""
    assert sorted(bool(of_process["stopped"]) for of_process in found) == [False, True]
    assert_same_checkpoints(folder / "stopped", folder / "straight")
    first, second = load_checkpoint(folder / "stopped/checkpoints/last.pt").random
    assert not torch.equal(first["torch"], second["torch"])
    # Metrics are written once.
    steps = [(line["kind"], line["step"]) for line in lines(folder / "stopped")]
    assert steps == [(line["kind"], line["step"]) for line in lines(folder / "straight")]
    assert len(steps) == len(set(steps))


def test_only_one_process_tells_of_a_mistake(found: Found) -> None:
    said = sorted(of_process["both_fail"] for of_process in found)
    assert said[0] == ""
    assert "split evenly among 2 processes" in said[1]


def test_a_process_that_fails_alone_ends_all_and_tells_why(folder: Path, found: Found) -> None:
    assert [of_process["one_fails"] for of_process in found] == ["", "only here"]
    assert load_checkpoint(folder / "one_fails/checkpoints/last.pt").position.step == 0


def test_another_number_of_processes_cannot_resume(folder: Path, scenes: Path) -> None:
    with pytest.raises(TrainingError, match="started with 2 processes, not 1: resume it with 2"):
        run(two_processes.normed_recipe(), scenes, folder / "straight", resume=True)
