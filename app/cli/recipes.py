"""`recoquest recipes`: list recipes, print one, and copy one to change it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from typer.core import TyperGroup

from app.cli.options import print_table
from training.common.atomic import write_text
from training.common.errors import RecipeError
from training.common.progress import console

if TYPE_CHECKING:
    from training.recipes.library import RecipeFile
    from training.recipes.schema import NamedRecipe

Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, as `recoquest train` takes it.")
]


class _ShowByDefault(TyperGroup):
    """`recoquest recipes NAME` is `recoquest recipes show NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` in front of what isn't a command."""
        named = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else ["show", *args])


recipes = typer.Typer(
    name="recipes",
    cls=_ShowByDefault,
    subcommand_metavar="[NAME] or COMMAND [ARGS]...",
    help="List recipes, print one (`recoquest recipes NAME`), or copy one to change it.",
)


@recipes.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Print this recipe with all its settings, or list all runs of this sweep or all recipes of "
            "this paper or file."
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """List the recipes that come along, those of a paper or the runs of a sweep one by one, or print one.

    What is printed is resolved, as YAML; of a sweep, a name a line.
    """
    from training.papers import load as papers
    from training.recipes.library import PAPERS, shipped
    from training.recipes.load import dump_recipe, list_recipes

    if name is not None and name in PAPERS:
        console().print(PAPERS[name])
        rows = [(one.name, one.description, one.source) for one in list_recipes() if one.group == name]
        print_table("Recipe", "Description", "Settings from", rows=rows)
    elif name is not None:
        libraries = (shipped(), papers.classification_recipes(), papers.language_model_recipes())
        if runs := {run: None for library in libraries for run in library.runs(name)}:
            typer.echo("\n".join(runs))
        else:
            typer.echo(dump_recipe(_loaded(name, overrides)), nl=False)
    else:
        for group, title in PAPERS.items():
            hint = f" (one by one: recoquest recipes {group})" if group else ""
            _print_files(title + hint, [file for file in shipped().files if file.group == group])
        _print_files("Classification, for recoquest classify", papers.classification_recipes().files)
        _print_files("Language models, for recoquest language-model", papers.language_model_recipes().files)


@recipes.command()
def copy(
    name: Annotated[str, typer.Argument(help="Name of a recipe, a run of a sweep, or a YAML file.")],
    file: Annotated[
        Path | None, typer.Argument(help="YAML file to write; by default the recipe's name and .yaml.")
    ] = None,
    overrides: Overrides = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if there is one.")] = False,
) -> None:
    """Write a copy of a recipe with all its settings and what they mean, named like its file.

    The copy has no base, so later releases don't change it. Train it by its path: `recoquest train ./FILE`.
    """
    from training.recipes.load import commented_recipe

    recipe = _loaded(name, overrides)
    file = Path(f"{recipe.name}.yaml") if file is None else file
    if file.suffix not in (".yaml", ".yml") or "::" in str(file):
        raise RecipeError(
            f"{file} would not be read as a recipe: give a name that ends in .yaml, without colons."
        )
    if file.exists() and not force:
        raise RecipeError(f"{file} is there already: give another name, or --force to replace it.")
    write_text(file, commented_recipe(recipe.model_copy(update={"name": file.stem})).rstrip("\n"))
    typer.echo(f"Wrote {file}, the recipe {file.stem}.")


def _loaded(name: str, overrides: Sequence[str] | None) -> "NamedRecipe":
    """Load a recipe of encoders, classifiers or language models."""
    from training.papers import load as papers
    from training.recipes.load import load_recipe

    if papers.classification_recipes().has(name):
        return papers.load_classification_recipe(name, overrides or [])
    if papers.language_model_recipes().has(name):
        return papers.load_language_recipe(name, overrides or [])
    return load_recipe(name, overrides or [])


def _print_files(title: str, files: "Sequence[RecipeFile]") -> None:
    """A table of files, each with the names of its recipes in a shell's notation."""
    table = Table(Column("Recipes", overflow="fold"), "Description", expand=True)
    for file in files:
        table.add_row(file.pattern, file.description)
    console().print(title, table, sep="\n")
