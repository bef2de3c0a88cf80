"""`recoquest recipes` and `recoquest collections`: what there is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from app.cli.options import Home, indexed
from app.edge.console import console

if TYPE_CHECKING:
    from training.recipes.library import RecipeFile


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Print this recipe with all its settings, or list all runs of this sweep or all recipes of "
            "this paper or file."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as `recoquest train` takes it.")
    ] = None,
) -> None:
    """List the recipes that come along, those of a paper or the runs of a sweep one by one, or print one.

    What is printed is resolved, as YAML; of a sweep, a name a line.
    """
    from training.classification import load as classification
    from training.language_models import config as language_models
    from training.recipes.library import PAPERS, shipped
    from training.recipes.load import dump_recipe, list_recipes, load_recipe

    if name is not None and name in PAPERS:
        table = Table("Recipe", "Description", "Settings from")
        for recipe in list_recipes():
            if recipe.group == name:
                table.add_row(recipe.name, recipe.description, recipe.source)
        console().print(PAPERS[name], table, sep="\n")
    elif name is not None:
        libraries = (shipped(), classification.shipped(), language_models.shipped())
        if runs := {run: None for library in libraries for run in library.runs(name)}:
            typer.echo("\n".join(runs))
        elif classification.shipped().has(name):
            resolved = classification.load_classification_recipe(name, overrides or [])
            typer.echo(dump_recipe(resolved), nl=False)
        elif language_models.shipped().has(name):
            typer.echo(dump_recipe(language_models.load_language_recipe(name, overrides or [])), nl=False)
        else:
            typer.echo(dump_recipe(load_recipe(name, overrides or [])), nl=False)
    else:
        for group, title in PAPERS.items():
            hint = f" (one by one: recoquest recipes {group})" if group else ""
            _print_files(title + hint, [file for file in shipped().files if file.group == group])
        _print_files("Of classification, for recoquest classify", classification.shipped().files)
        _print_files("Of language models, for recoquest language-model", language_models.shipped().files)


def _print_files(title: str, files: "Sequence[RecipeFile]") -> None:
    """A table of files, each with the names of its recipes in a shell's notation."""
    table = Table(Column("Recipes", overflow="fold"), "Description", expand=True)
    for file in files:
        table.add_row(file.pattern, file.description)
    console().print(title, table, sep="\n")


def collections(home: Home = None) -> None:
    """List what can be searched."""
    from app.settings import load_settings

    table = Table("Collection", "Images", "Generation", "Model", "Digest")
    with indexed(load_settings(home=home)) as engine:
        for one in engine.collections():
            generation = "none yet" if one.generation is None else str(one.generation)
            table.add_row(one.name, f"{one.count:,}", generation, one.model or "", (one.digest or "")[:12])
    console().print(table)
