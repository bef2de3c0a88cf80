"""Two processes train a task as one process does on the whole batch."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.classification.samples import write_squares
from tests.training.papers import two_processes
from tests.training.papers.samples import write_sentences, write_sst, write_vqa
from tests.training.runs import assert_same_runs, lines
from tests.training.trainer.two_processes import PROCESSES, run_in_two
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError

pytestmark = pytest.mark.slow

Found = list[dict[str, Any]]
# Adam makes rounding in a tiny gradient up to a thousandth of a step, which is 2e-2.
SAME = 2e-4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    write_sst(data / "sst", train=60)
    write_squares(data / "squares")
    write_vqa(data / "vqa")
    write_sentences(data / "sentences")
    return data


@pytest.fixture(scope="module")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes, by scenario."""
    folder = tmp_path_factory.mktemp("two")
    run_in_two(folder, data, two_processes.SCENARIOS)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    """Findings of each process, by scenario."""
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("scenario", two_processes.EXACT)
def test_weights_and_figures_are_those_of_one_process(
    folder: Path, data: Path, found: Found, tmp_path: Path, scenario: str
) -> None:
    alone = two_processes.EXACT[scenario](tmp_path / "one", data)
    ours, theirs = (
        load_checkpoint(out / "checkpoints/last.pt").task for out in (folder / scenario, tmp_path / "one")
    )
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=SAME, msg=name)
    # An estimate within a process's rows.
    skipped = {"kind", "samples_per_second", "mutual_information"}
    for line, expected in zip(lines(folder / scenario), lines(tmp_path / "one"), strict=True):
        assert line.keys() == expected.keys()
        names = sorted(expected.keys() - skipped)
        assert [line[name] for name in names] == pytest.approx(
            [expected[name] for name in names], rel=1e-3, abs=1e-4
        )
    assert found[0][scenario] == found[1][scenario] == pytest.approx(alone, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("scenario", "batch"), [("texts", 8), ("questions", 14), ("sentences", 10)])
def test_last_batches_did_not_fill_up(folder: Path, scenario: str, batch: int) -> None:
    examples = json.loads((folder / scenario / "results.json").read_text())["examples"]["train"]
    assert 0 < examples % batch < batch
    assert examples % batch % PROCESSES == (scenario == "texts")


def test_a_stop_of_one_stops_all_and_a_resumed_run_is_bit_equal(folder: Path, found: Found) -> None:
    """Also the networks of an implicit posterior, which have an optimizer of their own, are alike in both."""
    assert sorted(bool(of_process["stopped"]) for of_process in found) == [False, True]
    assert any("after step 8 of 12" in of_process["stopped"] for of_process in found)
    assert_same_runs(folder / "stopped", folder / "straight")


def test_another_number_of_processes_cannot_resume(folder: Path, data: Path) -> None:
    with pytest.raises(TrainingError, match="started with 2 processes, not 1: resume it with 2"):
        two_processes.implicit(folder / "straight", data, resume=True)


def test_codes_that_a_whole_batch_refines_are_not_shared(found: Found) -> None:
    said = sorted(of_process["refined"] for of_process in found)
    assert said[0] == ""
    assert "SA-VAE refines the codes of a whole batch" in said[1]
