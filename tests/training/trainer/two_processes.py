"""Two real gloo processes that train as torchrun would start them; all scenarios in one go, to start once."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore
from torch.multiprocessing.spawn import spawn

from tests.training.runs import before_step, terminate
from tests.training.trainer.scenes import run, tiny_recipe
from training.common.errors import DataError, RecoquestError
from training.data import prepared_rows
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.memory import plan
from training.trainer.memory.trial import StepMemory
from training.trainer.optimisation.gradients import GradientAverage
from training.trainer.run_state.devices import build_fabric
from training.trainer.run_state.errors import AnotherProcessFailedError, TrainingInterruptedError
from training.trainer.run_state.processes import joined, one_voice

PROCESSES = 2
# Functions of a new folder and the data, by name.
Scenarios = dict[str, Callable[[Path, Path], Any]]


def exact_recipe(**changes: Any) -> Recipe:
    """A recipe whose gradient is the same however the batch is split: no batch norm and no dropout."""
    options = {"hidden_sizes": [8, 8], "depths": [1, 1], "num_stages": 2, "patch_size": 2}
    text = {"architecture": "gru", "options": {"word_width": 8, "width": 8, "layers": 1}}
    model = {"image": {"architecture": "convnext", "options": options}, "text": text}
    model |= changes.pop("model", {})
    return tiny_recipe(**{"batch_size": 6, "steps": 3, "model": model} | changes)


# Recipes that train what one process trains.
EXACT: dict[str, Recipe] = {
    "exact": exact_recipe(),
    # A loss that is a sum over the batch, and one with a memory that is in the checkpoint.
    "summed": exact_recipe(objective={"name": "reco"}),
    "remembering": exact_recipe(objective={"name": "reclaim", "neighbours": 4}),
    # Images alone, with two views of each.
    "views": exact_recipe(select_by="loss", model={"text": None}, objective={"name": "simclr"}),
    "by_loss": exact_recipe(select_by="loss"),
    # Over every text, of which a batch may have two of an image.
    "texts": exact_recipe(data={"epoch_of": "texts"}),
    "repeated": exact_recipe(select_by="loss"),
}


def repeated(data: Path) -> Path:
    """The data in which texts belong to several images of a batch."""
    return data.with_name("repeated")


def broken(data: Path) -> Path:
    """The data with a broken image."""
    return data.with_name("broken")


def run_in_two(folder: Path, data: Path, scenarios: Scenarios | None = None) -> None:
    """Run every scenario in two processes; what each finds is in `folder/RANK.pt`."""
    scenarios = SCENARIOS if scenarios is None else scenarios
    # As torchrun does, this process holds what they meet over: a port that is only thought free may be taken.
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in scenarios]
    ports = [store.port for store in stores]
    arguments = (str(folder), str(data), ports, scenarios)
    spawn(_work, args=arguments, nprocs=PROCESSES)  # type: ignore[no-untyped-call]


def _exact(name: str, out: Path, data: Path) -> Any:
    return run(EXACT[name], repeated(data) if name == "repeated" else data, out).metrics


def _chunked(out: Path, data: Path) -> Any:
    return run(exact_recipe(chunk_size=1), data, out).metrics


def _scarce(out: Path, data: Path) -> Any:
    """The second process has less memory free: what each takes to be free, and what it encodes at once."""
    second = int(os.environ["RANK"]) == 1
    taken: list[int] = []

    def largest(memory: StepMemory, free: int) -> int:
        taken.append(free)
        return memory.share // 2 if second else memory.share

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "free_memory_each", lambda: 10**9 if second else 10**12)
        patch.setattr(plan, "_largest_chunk", largest)
        run(exact_recipe(batch_size=12), data, out)
    return taken, load_recipe(str(out / "recipe.yaml")).train.chunk_size


def _little_memory(out: Path, data: Path) -> Any:
    """Images of which one is broken fit into the memory of the first process, and not into the second's."""
    second = int(os.environ["RANK"]) == 1
    recipe = exact_recipe(data={"cache_images": "memory", "max_rejected": 0.2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared_rows, "fits_cache", lambda _: not second)
        run(recipe, broken(data), out)


def normed_recipe() -> Recipe:
    """A recipe with batch norm: processes differ in its statistics, and the loss depends on them."""
    return tiny_recipe(select_by="loss")


def _straight(out: Path, data: Path) -> Any:
    return run(normed_recipe(), data, out).metrics


def _stopped(out: Path, data: Path) -> Any:
    """The second process alone is asked to stop in its second step; then both go on."""
    second = int(os.environ["RANK"]) == 1
    with before_step(TrainingLoop, 2, lambda: terminate() if second else None):
        said = _failure(normed_recipe(), data, out)
    run(normed_recipe(), data, out, resume=True)
    return said


def _one_fails(out: Path, data: Path) -> Any:
    """The second process alone fails in its second step; the first learns of it by losing it."""

    def fail() -> None:
        if int(os.environ["RANK"]) == 1:
            raise DataError("only here")

    with before_step(TrainingLoop, 2, fail):
        return _failure(tiny_recipe(), data, out)


def _gradients(out: Path, data: Path) -> Any:
    """The averages of gradients of which some processes have none, of one backward pass and of two."""
    rank = int(os.environ["RANK"])
    both, one, none = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(3))
    wide = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    found: dict[str, Any] = {"begun": []}
    with joined(build_fabric("fp32", "cpu")) as processes:
        average = GradientAverage([both, one, none, wide], processes, numbers_at_once=6)
        both.register_hook(  # type: ignore[no-untyped-call]
            lambda _: found["begun"].append(average.begun)
        )
        for overlap in (True, False):
            for parameter in (both, one, none, wide):
                parameter.grad = None
            average.begin(overlap=overlap)
            for _ in range(1 if overlap else 2):
                # The parameter that is used last has its gradient first.
                used = both * (1.0 + 2 * rank) + (one if rank else 0)
                last = (wide * torch.arange(4.0, dtype=torch.float64) * rank).sum()
                torch.autograd.backward(used.sum() + last)
            average.finish()
            found[str(overlap)] = [
                None if parameter.grad is None else parameter.grad.clone()
                for parameter in (both, one, none, wide)
            ]
    return found


def _both_fail(out: Path, data: Path) -> Any:
    """A mistake that both processes notice."""
    return _failure(tiny_recipe(batch_size=5), data, out)


SCENARIOS: Scenarios = {
    **{name: partial(_exact, name) for name in EXACT},
    "gradients": _gradients,
    "chunked": _chunked,
    "scarce": _scarce,
    "little_memory": _little_memory,
    "straight": _straight,
    "stopped": _stopped,
    "both_fail": _both_fail,
    # The last: a process that fails ends.
    "one_fails": _one_fails,
}


def _work(rank: int, folder: str, data: str, ports: list[int], scenarios: Scenarios) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(PROCESSES),
        "LOCAL_WORLD_SIZE": str(PROCESSES),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
    }
    found = {}
    for (name, scenario), port in zip(scenarios.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        found[name] = scenario(Path(folder) / name, Path(data))
        torch.save(found, Path(folder) / f"{rank}.pt")


def _failure(recipe: Recipe, data: Path, out: Path) -> str:
    return failure(lambda: run(recipe, data, out))


def failure(work: Callable[[], object]) -> str:
    """What a process says that fails to train; nothing when another says it."""
    try:
        with one_voice():
            work()
    except AnotherProcessFailedError:
        return ""
    except (RecoquestError, TrainingInterruptedError) as error:
        return str(error)
    return "nothing failed"
