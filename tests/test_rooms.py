"""The order of rooms: who may import whom, how many modules a folder has, and no circles."""

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("app", "index", "training")
MOST_MODULES: Final = 12
# One of a kind each.
OF_A_KIND: Final = {"training/objectives"}
# Each room may import from itself and from those before it.
ORDER: Final = {
    "training": (
        "errors atomic frozen host progress distributed models data objectives evaluation samples shortcuts "
        "recipes trainer tasks classification language_models"
    ),
    "index": (
        "errors vectors catalogue files filters scoring home views search duplicates engine writes feedback "
        "generations backup ingest"
    ),
    "app": (
        "crontab settings launch concurrency engine jobs encoding decoding doctor observability lifecycle "
        "schemas http access operations server api application cli"
    ),
}


def _modules(package: str) -> Iterator[str]:
    for path in sorted((ROOT / package).rglob("*.py")):
        if "migrations" not in path.parts:
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _file(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _imported(module: str) -> Iterator[str]:
    """Give the modules of ours that a module imports, at its head or anywhere else."""
    for node in ast.walk(ast.parse(_file(module).read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        for name in names:
            if name.split(".")[0] in PACKAGES:
                parent = name.rpartition(".")[0]
                yield name if _file(name).exists() else parent


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_goes_to_a_room_before(package: str) -> None:
    order = {room: place for place, room in enumerate(ORDER[package].split())}
    for module in _modules(package):
        if module == package:
            continue
        own = module.split(".")[1]
        assert own in order, f"{own} has no place in the order of rooms"
        for other in _imported(module):
            assert PACKAGES.index(other.split(".")[0]) >= PACKAGES.index(package), f"{module}: {other}"
            if other.startswith(f"{package}."):
                assert order[other.split(".")[1]] <= order[own], f"{module} imports {other}"


def test_no_modules_import_each_other() -> None:
    graph = {
        module: set(_imported(module)) - {module} for package in PACKAGES for module in _modules(package)
    }
    # A package that names what it offers is not imported back by its modules.
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folder_has_more_modules_than_can_be_remembered() -> None:
    modules = [_file(module) for package in PACKAGES for module in _modules(package)]
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in modules if path.name != "__init__.py")
    assert {folder for folder, count in folders.items() if count > MOST_MODULES} <= OF_A_KIND
