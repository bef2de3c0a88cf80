"""Free memory of machines, containers and jobs, and what of it a process may take."""

from pathlib import Path

import pytest

from training.common import memory
from training.common.errors import DataError

GIB = 1024**3


def write_group(controller: memory.Controller, folder: Path, limit: str) -> None:
    """A group that has taken 6 GiB, 5 of them for files that can be read again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / controller.limit).write_text(f"{limit}\n")
    (folder / controller.used).write_text(f"{6 * GIB}\n")
    entries = {"anon": GIB, "inactive_anon": 7, controller.cached: 5 * GIB, "slab": 9}
    lines = [f"{name} {size}\n" for name, size in entries.items()]
    (folder / "memory.stat").write_text("".join(lines))


@pytest.fixture(params=["_FIRST", "_SECOND"])
def group(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outermost of the groups of this process, which may take 8 GiB of a machine with more."""
    controller = getattr(memory, request.param)._replace(mount=tmp_path)
    write_group(controller, tmp_path, str(8 * GIB))
    monkeypatch.setattr(memory, "_of_machine", lambda: 100 * GIB)
    monkeypatch.setattr(memory, "_groups", lambda _: [(controller, "/job/step")])
    return tmp_path


def test_files_that_a_container_has_read_are_free_memory(group: Path) -> None:
    assert memory.free_memory() == 7 * GIB
    # Without a limit, what the machine has counts.
    for path in group.iterdir():
        path.unlink()
    assert memory.free_memory() == 100 * GIB


def test_the_narrowest_of_nested_groups_counts(group: Path) -> None:
    controller, _ = memory._groups(Path())[0]  # type: ignore[index]
    write_group(controller, group / "job", str(4 * GIB))
    write_group(controller, group / "job/step", "max" if controller.limit == "memory.max" else str(2**63 - 1))
    assert memory.free_memory() == 3 * GIB


def test_groups_of_both_versions_are_found(tmp_path: Path) -> None:
    listing = tmp_path / "cgroup"
    listing.write_text("9:cpuset,cpu:/one\n4:memory:/slurm/job_7\n1:name=systemd:/a:b\n0::/user.slice/run\n")
    found = [(controller.limit, path) for controller, path in memory._groups(listing)]
    assert found == [("memory.limit_in_bytes", "/slurm/job_7"), ("memory.max", "/user.slice/run")]
    assert list(memory._groups(tmp_path / "missing")) == []
    assert memory._of_machine() > 0


def test_processes_of_a_machine_share_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 10 * GIB)
    memory.check_cache("The sounds", 6 * GIB)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert memory.free_memory_each() == 5 * GIB
    memory.check_cache("The sounds", 3 * GIB)
    with pytest.raises(DataError, match=r"The sounds may need 4\.0 GiB.*the 3\.5 .*cache_images to false"):
        memory.check_cache("The sounds", 4 * GIB)
