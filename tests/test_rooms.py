"""The order of rooms: who may import whom, and no circles."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("app", "index", "training")
# Scripts of the page: rooms of one page each, a room of all, and the tables of their texts.
PAGE: Final = ROOT / "app" / "page"
SHARED: Final = "shared"
WORDS: Final = "words"
PAGE_ROOMS: Final = ("cases", "operate", "room", "search", SHARED, "viewer", WORDS)
# Elements under their addresses for other pages.
PUBLIC: Final = frozenset({"case-book.js", "image-search.js"})
# Each room may import from itself and from those before it.
ORDER: Final = {
    "training": (
        "common imaging clinical importing models data objectives evaluation samples shortcuts "
        "recipes conversion trainer classification papers"
    ),
    "index": (
        "errors vectors catalogue keys idempotency audit files filters scoring home views search duplicates "
        "engine reports studies writes feedback cases generations backup erasure ingest"
    ),
    "app": (
        "setting_values settings metadata_values concurrency heartbeat engine encoding decoding edge access "
        "audit health services permissions idempotency refresh jobs generations search collections feedback "
        "embeddings images cases openapi page_routes radiology routes application cli command"
    ),
}
# Routes of all subjects stand above all else that subjects have: nothing but the application imports them.
# What radiology adds to settings, jobs and commands stands with those.
_ADDED: Final = re.compile(
    r"app\.\w+\.(?:\w+_)?(?P<room>routes)(\.|$)|app\.radiology\.(?P<of>settings|jobs|commands)$"
)

# Imports, exports from another script, and types that a comment imports.
_SCRIPT_IMPORT: Final = re.compile(r"""\b(?:from|import)\b\s*\(?\s*['"]([^'"\s]+)['"]""")
_PAGE_FILE: Final = re.compile(r'\b(?:href|src)="page/([^"]+)"')


def _modules(package: str) -> Iterator[str]:
    for path in sorted((ROOT / package).rglob("*.py")):
        if "migrations" not in path.parts:
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    package = path / "__init__.py"
    return package if package.is_file() else path.with_suffix(".py")


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


def _with_packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _room(module: str) -> str:
    added = _ADDED.match(module)
    room = module.split(".")[1] if added is None else added["room"] or added["of"]
    return "cli" if room == "commands" else room


def _imported_by_script(script: Path) -> Iterator[Path]:
    for name in _SCRIPT_IMPORT.findall(script.read_text(encoding="utf-8")):
        yield (script.parent / name).resolve()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_goes_to_a_room_before(package: str) -> None:
    order = {room: place for place, room in enumerate(ORDER[package].split())}
    for module in _modules(package):
        if module == package:
            continue
        own = _room(module)
        assert own in order, f"{own} has no place in the order of rooms"
        for other in _imported(module):
            assert PACKAGES.index(other.split(".")[0]) >= PACKAGES.index(package), f"{module}: {other}"
            if other.startswith(f"{package}."):
                assert order[_room(other)] <= order[own], f"{module} imports {other}"


def test_no_modules_import_each_other() -> None:
    # A module's import loads the packages above it, so that these count as imported, but for one's own.
    graph = {
        module: {package for other in _imported(module) for package in _with_packages(other)}
        - set(_with_packages(module))
        for package in PACKAGES
        for module in _modules(package)
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_imports_of_scripts_are_read_in_every_form(tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text(
        "import './a.js';\nimport {\n  b,\n} from '../b.js';\nexport { c } from './c.js';\n"
        "const d = await import('./d.js');\n/** @param {import(\"./e.js\").E} e */\n"
        "input('from', low, 'to');\n"
    )
    names = [path.name for path in _imported_by_script(script)]
    assert names == ["a.js", "b.js", "c.js", "d.js", "e.js"]


@pytest.mark.parametrize("room", PAGE_ROOMS)
def test_scripts_import_from_their_page_and_from_both(room: str) -> None:
    scripts = sorted((PAGE / room).rglob("*.js"))
    assert scripts
    for script in scripts:
        for other in _imported_by_script(script):
            assert other.is_file(), f"{script} imports {other}"
            assert other.relative_to(PAGE).parts[0] in {room, SHARED, WORDS}, f"{script} imports {other}"


def test_pages_load_files_of_their_room_and_of_both() -> None:
    pages = sorted(PAGE.rglob("*.html"))
    assert len(pages) == 4
    for page in pages:
        names = _PAGE_FILE.findall(page.read_text(encoding="utf-8"))
        assert names
        for name in names:
            assert (PAGE / name).is_file(), f"{page} loads {name}"
            own = {page.relative_to(PAGE).parts[0], SHARED, *PUBLIC}
            assert name.split("/")[0] in own, f"{page} loads {name}"


def test_every_script_of_the_page_is_in_a_room() -> None:
    assert {path.name for path in PAGE.iterdir() if path.is_dir()} == set(PAGE_ROOMS)
    assert {path.name for path in PAGE.iterdir() if path.is_file()} == PUBLIC
