"""The recipes that come with the project: which there are, and their settings with those of their bases."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from training.common.errors import RecipeError
from training.recipes.document import parse_document
from training.recipes.merge import merge
from training.recipes.variants import OF_SWEEP, expand, listed, pattern, summary

SUFFIX = ".yaml"

PAPERS: Mapping[str, str] = {
    "": "Of this project",
    "reco": "ReCo: Relaxing Contrastiveness in Multimodal Representation Learning",
    "quest": "QUEST: Quadruple Multimodal Contrastive Learning",
    "uniformity": "The Role of Local Alignment and Uniformity in Image-Text Contrastive Learning",
    "reclaim": "RECLAIM: Towards Robust and Efficient Contrastive Textual Representation Learning",
}


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """A file of one recipe, or of several that differ by its `variants`.

    Attributes:
        group: Its folder, which is named after a paper; empty at the top.
        pattern: The names of its recipes in a shell's notation.
        description: What they are.
        listed: Description of each of its recipes by name, and its source where the file has one.
        recipes: Settings by name, without those of their bases; a sweep as its runs.
    """

    group: str
    pattern: str
    description: str
    listed: Mapping[str, Mapping[str, str]]
    recipes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Library:
    """The recipes in a package and its folders.

    Attributes:
        files: By group and name; those of no group come first.
    """

    files: tuple[RecipeFile, ...]
    _recipes: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @classmethod
    def of_package(cls, package: str) -> "Library":
        """Read all recipes of a package.

        Raises:
            RecipeError: A file is wrong, or two recipes have the same name.
        """
        files = tuple(sorted(_files(resources.files(package)), key=lambda file: (file.group, file.pattern)))
        recipes: dict[str, Mapping[str, Any]] = {}
        for file in files:
            for name, tree in file.recipes.items():
                if name in recipes:
                    raise RecipeError(f"There are two recipes named {name!r}.")
                recipes[name] = tree
        return cls(files, recipes)

    @property
    def names(self) -> list[str]:
        """Every recipe, by group and file; a sweep is one."""
        return [name for file in self.files for name in file.listed]

    def runs(self, name_or_path: str) -> list[str]:
        """The runs of a sweep, by name, or the recipes of a file with several; none of a single recipe.

        Raises:
            RecipeError: The file cannot be read.
        """
        if is_path(name_or_path):
            path, _, variant = name_or_path.partition(OF_SWEEP)
            recipes = _recipes_of_file(path)
            several = len(recipes) > 1 and variant not in recipes
            return [f"{path}{OF_SWEEP}{name}" for name in recipes if several and name.startswith(variant)]
        return [run for run in self._recipes if run.startswith(name_or_path + OF_SWEEP)]

    def nearest(self, wrong: str) -> str | None:
        """The recipe, sweep or run of a sweep that is spelt much like it, if any."""
        return nearest(wrong, [*self.names, *self._recipes])

    def has(self, name: str) -> bool:
        """Whether there is such a recipe, sweep, or run of a sweep."""
        return name in self._recipes or name in self.names

    def tree(self, name_or_path: str) -> dict[str, Any]:
        """All settings of a recipe, merged over those of its base, of that one's base, and so on.

        Not those of a base's `tuned`.

        Args:
            name_or_path: A recipe's name; the name of a sweep's run, `NAME::VALUES`; the path of a `.yaml`
                file; or `PATH::NAME` where the file has variants, `PATH::NAME::VALUES` where it is a sweep.

        Raises:
            RecipeError: No such recipe, a wrong file, or bases that lead back to where they began.
        """
        tree, seen = self._settings_of(name_or_path), [name_or_path]
        while "base" in tree:
            base = str(tree.pop("base"))
            if base in seen:
                raise RecipeError(
                    f"Recipe {name_or_path}: its bases form a loop, {' > '.join([*seen, base])}."
                )
            seen.append(base)
            # A grid that the base was tuned with says nothing of what is built on it.
            below = {key: value for key, value in self._settings_of(base).items() if key != "tuned"}
            tree = merge(below, tree)
        return deepcopy(tree)

    def _settings_of(self, name_or_path: str) -> dict[str, Any]:
        if is_path(name_or_path):
            path, _, variant = name_or_path.partition(OF_SWEEP)
            return _of_file(path, variant)
        if runs := self.runs(name_or_path):
            raise RecipeError(
                f"{name_or_path} is a sweep of {len(runs)} runs: choose one that `recoquest recipes "
                f"{name_or_path}` lists, such as {runs[0]}."
            )
        if name_or_path not in self._recipes:
            close = self.nearest(name_or_path)
            hint = f" (the nearest is {close})" if close else ""
            raise RecipeError(
                f"There is no recipe {name_or_path!r}{hint}: choose one that `recoquest recipes` lists, or "
                "give the path of a .yaml file."
            )
        return dict(self._recipes[name_or_path])


@cache
def shipped() -> Library:
    """The recipes that come with the project; they do not change while it runs."""
    return Library.of_package("training.recipes")


def nearest(wrong: str, names: Sequence[str]) -> str | None:
    """Return the name that is spelled most like it, if any is close."""
    return next(iter(get_close_matches(wrong, names, n=1, cutoff=0.5)), None)


def _files(folder: Traversable, group: str = "") -> Iterator[RecipeFile]:
    for entry in folder.iterdir():
        if entry.name.endswith(SUFFIX):
            where = entry.name.removesuffix(SUFFIX)
            tree = parse_document(entry.read_text(encoding="utf-8"), where)
            yield RecipeFile(
                group, pattern(tree, where), summary(tree, where), listed(tree, where), expand(tree, where)
            )
        elif not group and entry.is_dir() and not entry.name.startswith("_"):
            yield from _files(entry, entry.name)


def is_path(name_or_path: str) -> bool:
    """Return whether a recipe is named by the path of its file."""
    path = name_or_path.partition(OF_SWEEP)[0]
    return path.endswith((SUFFIX, ".yml")) or "/" in path


def _recipes_of_file(path: str) -> dict[str, dict[str, Any]]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"Recipe {path} cannot be read: {error}.") from None
    return expand(parse_document(text, path), path)


def _of_file(path: str, variant: str) -> dict[str, Any]:
    recipes = _recipes_of_file(path)
    if not variant and len(recipes) == 1:
        return next(iter(recipes.values()))
    if variant not in recipes:
        close = nearest(variant, list(recipes))
        hint = f", such as {path}{OF_SWEEP}{close}" if close else ""
        names = ", ".join(recipes)
        raise RecipeError(f"Recipe {path} holds {names}: name one of them as {path}{OF_SWEEP}NAME{hint}.")
    return recipes[variant]
