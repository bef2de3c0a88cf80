"""Builds the documentation site into `.site`: the pages of docs/, and the reference, generated from the code.

Run `make docs`, or `make docs ARGS=--serve` to read and edit it at http://127.0.0.1:8010.
"""

import argparse
import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import typer
import yaml
from pydantic import BaseModel

from app.application import create_app
from app.cli.main import build
from app.edge.metrics import Metrics
from app.radiology.settings import RadiologySettings
from app.settings import PREFIX, Settings
from training.common.record import Record
from training.importing.layouts import describe_layouts
from training.objectives.base import objective_names, objective_settings
from training.recipes.schema import Recipe

_ROOT: Final = Path(__file__).resolve().parents[1]
_SITE: Final = _ROOT / ".site"
_MADE: Final = "<!-- Made by docs/build.py from the code. -->"


def settings_page() -> str:
    """Every setting of the service, with its variable, its default and what it does."""
    rows: list[tuple[str, ...]] = [("Variable", "Default", "Meaning")]
    for kind in (Settings, RadiologySettings):
        for name, meaning in attribute_docstrings(kind).items():
            default = kind.model_fields[name].get_default(call_default_factory=True)
            rows.append((f"`{PREFIX}{name.upper()}`", default_cell(default), meaning))
    return page(
        "Settings",
        "Set these environment variables for the service, workers and the command line. "
        "`RECOQUEST_ENV_FILE` names a file of them. For a secret, a variable that ends in `_FILE` names a "
        "file that contains it.",
        table(rows),
    )


def attribute_docstrings(kind: type) -> dict[str, str]:
    """The attributes of a class that have docstrings, in order."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for assigned, described in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(assigned, ast.AnnAssign)
            and isinstance(assigned.target, ast.Name)
            and isinstance(described, ast.Expr)
            and isinstance(described.value, ast.Constant)
        ):
            found[assigned.target.id] = " ".join(str(described.value.value).split())
    return found


def recipes_page() -> str:
    """Every key of a recipe, and the settings of every objective."""
    parts = [
        page(
            "Recipes",
            "A recipe is a YAML file with these keys. `recoquest recipes copy NAME FILE` writes one "
            "with all of them explained, and `--set key=value` changes one for a run.",
        )
    ]
    for name, field in Recipe.model_fields.items():
        if name == "objective":
            continue
        inner = models_in(field.annotation)
        row = f"`{name}`", kind_of(field.annotation), default_of(field), field.description or ""
        rows = list(recipe_rows(name, inner[0])) if inner else [row]
        parts.append(f"## `{name}`\n\n{table([('Key', 'Kind', 'Default', 'Meaning'), *rows])}")
    parts.append("## `objective`\n\n`objective.name` selects the loss. Each one has its own settings.")
    for name in objective_names():
        kind = objective_settings(name)
        rows = [row for row in recipe_rows("objective", kind) if row[0] != "`objective.name`"]
        text = f"### `{name}`\n\n{(inspect.getdoc(kind.implementation) or '').partition(chr(10))[0]}"
        parts.append(text + (f"\n\n{table([('Key', 'Kind', 'Default', 'Meaning'), *rows])}" if rows else ""))
    return "\n\n".join(parts)


def recipe_rows(prefix: str, model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """One row for each key below a model."""
    for name, field in model.model_fields.items():
        key, inner = f"{prefix}.{name}", models_in(field.annotation)
        if len(inner) == 1:
            yield from recipe_rows(key, inner[0])
        else:
            yield f"`{key}`", kind_of(field.annotation), default_of(field), field.description or ""


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def kind_of(annotation: Any) -> str:
    """An annotation in words for a table."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join("none" if part is type(None) else kind_of(part) for part in parts)
    if origin is not None:
        return f"{getattr(origin, '__name__', origin)} of {', '.join(map(kind_of, parts))}".replace(
            "Ellipsis", "..."
        )
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}.get(
        getattr(annotation, "__name__", ""), getattr(annotation, "__name__", str(annotation))
    )


def default_of(field: Any) -> str:
    """The default of a field, or that it is required."""
    return "required" if field.is_required() else default_cell(field.get_default(call_default_factory=True))


def default_cell(value: Any) -> str:
    """A default as a cell of a table."""
    if value is None or value in ((), {}, ""):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def manifest_page() -> str:
    """The fields of a line of a manifest, and the layouts that an import reads."""
    fields = attributes_of(Record)
    rows = [("Field", "Meaning")]
    rows += [
        (f"`{name}`", meaning) for name, meaning in fields.items() if name not in ("line", "table", "rows")
    ]
    layouts = [("Layout", "What it reads"), *((f"`{name}`", about) for name, about in describe_layouts())]
    return page(
        "Manifest",
        "A data set is a folder with `manifest.jsonl`. Each line is a JSON object that describes one image. "
        "`id` and `image` are required.",
        table(rows),
        "## Layouts\n\n`recoquest import LAYOUT SOURCE OUT` writes a manifest from one of these.",
        table(layouts),
    )


def attributes_of(kind: type) -> dict[str, str]:
    """The entries of the section `Attributes` of a class's docstring."""
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def command_line_page() -> str:
    """Every command with its arguments and options."""
    command = typer.main.get_command(build())
    context = command.context_class(command, info_name="recoquest")
    parts = [page("Command line", "`recoquest COMMAND --help` prints the same for one command.")]
    parts += commands_below(command, context, 2)
    return "\n\n".join(parts)


def commands_below(command: Any, context: Any, level: int) -> Iterator[str]:
    """A section for each command, below its group."""
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        one = command.get_command(context, name)
        inner = type(context)(one, info_name=name, parent=context)
        usage = " ".join(one.collect_usage_pieces(inner))
        rows = [("Argument or option", "Meaning")]
        for parameter in one.params:
            record = parameter.get_help_record(inner)
            if record is not None:
                rows.append((f"`{record[0].strip()}`", record[1]))
        heading = f"{'#' * level} `{inner.command_path}`\n\n{inspect.cleandoc(one.help or '')}"
        yield f"{heading}\n\n```text\n{inner.command_path} {usage}\n```"
        if len(rows) > 1:
            yield table(rows)
        yield from commands_below(one, inner, level + 1)


def problems_page() -> str:
    """The page of problems that the service itself shows at /docs/problems."""
    return f"{_MADE}\n\n{(_ROOT / 'app/edge/problems.md').read_text(encoding='utf-8')}"


def metrics_page() -> str:
    """Every metric of the service with its type and labels."""
    rows = [("Metric", "Type", "Labels", "Meaning")]
    registry = Metrics().registry
    for metric in sorted(registry.collect(), key=lambda metric: metric.name):
        if metric.name.startswith("recoquest"):
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            # Without values, only the collector knows its labels.
            collector = vars(registry)["_names_to_collectors"][name]
            labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
            rows.append((f"`{name}`", metric.type, labels, metric.documentation))
    return page("Metrics", "`GET /metrics` returns these in Prometheus' format.", table(rows))


def http_api_page() -> str:
    """Every operation of the HTTP API; its OpenAPI page has the bodies."""
    parts = [
        page(
            "HTTP API",
            "The service shows the whole description, with bodies, answers and examples, at `/docs`, and "
            "serves it as OpenAPI at `/openapi.json`.",
        )
    ]
    document = create_app(Settings()).openapi()
    by_tag: dict[str, list[tuple[str, ...]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            row = f"`{method.upper()} {path}`", operation["summary"]
            by_tag.setdefault(operation.get("tags", ["other"])[0], []).append(row)
    for tag, rows in by_tag.items():
        parts.append(f"## {tag.capitalize()}\n\n{table([('Operation', 'Purpose'), *rows])}")
    return "\n\n".join(parts)


def python_client_page() -> str:
    """The public names of the Python client, for mkdocstrings."""
    names = [
        "Client",
        "AsyncClient",
        "Search",
        "Filter",
        "ImageFile",
        "NewImage",
        "Record",
        "Retry",
        "ProblemError",
    ]
    parts = [
        page(
            "Python client",
            "Install `recoquest-client`; every name below is imported from `recoquest_client`.",
        )
    ]
    parts += [f"::: recoquest_client.{name}" for name in names]
    return "\n\n".join(parts)


def typescript_client_page() -> str:
    """The methods of the TypeScript client with their comments."""
    source = (_ROOT / "clients/typescript/src/client.ts").read_text(encoding="utf-8")
    body = source[source.index("export class RecoquestClient") :]
    members = re.findall(
        r"^  /\*\* ((?:(?!\*/).)+) \*/\n  ((?:async )?\*?\w+\(.*?\): [^{]+?) \{$", body, re.M | re.S
    )
    parts = [page("TypeScript client", "`new RecoquestClient({ baseUrl, key })` has these methods.")]
    for comment, signature in members:
        name = re.search(r"(\w+)\(", signature)
        assert name is not None
        text = " ".join(line.strip(" *") for line in comment.splitlines())
        parts.append(f"## `{name[1]}`\n\n{text}\n\n```ts\n{inspect.cleandoc('  ' + signature)}\n```")
    return "\n\n".join(parts)


def page(title: str, *paragraphs: str) -> str:
    """The beginning of a generated page."""
    return "\n\n".join((_MADE, f"# {title}", *paragraphs))


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as a table in Markdown, the first as its head."""
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows
    ]
    return "\n".join((lines[0], "|" + "---|" * lines[0].replace("\\|", "").count("|", 1), *lines[1:]))


_REFERENCE: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "settings": ("Settings", settings_page),
    "recipes": ("Recipes", recipes_page),
    "manifest": ("Manifest", manifest_page),
    "cli": ("Command line", command_line_page),
    "http-api": ("HTTP API", http_api_page),
    "problems": ("Problems", problems_page),
    "metrics": ("Metrics", metrics_page),
    "python-client": ("Python client", python_client_page),
    "typescript-client": ("TypeScript client", typescript_client_page),
}


def write_pages(folder: Path) -> None:
    """Write the pages of docs/ and the reference to an empty folder."""
    shutil.copytree(_ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.py", "*.yml", "__pycache__"))
    (folder / "reference").mkdir()
    for name, (_, write) in _REFERENCE.items():
        (folder / "reference" / f"{name}.md").write_text(write() + "\n", encoding="utf-8")


def main() -> int:
    """Build the site, or serve it."""
    parser = argparse.ArgumentParser(description="Build the documentation site into .site.")
    parser.add_argument("--serve", action="store_true", help="serve it on 127.0.0.1:8010 instead")
    serve = parser.parse_args().serve
    shutil.rmtree(_SITE / "pages", ignore_errors=True)
    _SITE.mkdir(exist_ok=True)
    write_pages(_SITE / "pages")
    # The synchronous client is made from the asynchronous one.
    written = [sys.executable, "-c", "import setup; setup.write_client()"]
    subprocess.run(written, cwd=_ROOT / "clients/python", check=True)
    settings = yaml.safe_load((_ROOT / "docs/mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": str(_SITE / "pages"), "site_dir": str(_SITE / "html")}
    (_SITE / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    command = ["serve", "--dev-addr", "127.0.0.1:8010"] if serve else ["build", "--strict", "--quiet"]
    mkdocs = [sys.executable, "-m", "mkdocs", *command, "--config-file", str(_SITE / "mkdocs.yml")]
    # It advertises its next version on each build.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(mkdocs, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
