"""Prints what `pip install PROJECT[EXTRA,...]` would need, without needing the project's code.

The image installs its dependencies before its code is copied, so that a changed line of code does not
install them again.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, *wanted: str) -> list[str]:
    """Returns the requirements of a project and of some of its extras, one each.

    Raises:
        SystemExit: The project has no such extra.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for extra in wanted:
        if extra not in extras:
            raise SystemExit(f"{pyproject} has no extra {extra!r}; choose of: {', '.join(sorted(extras))}.")
    return [*project["dependencies"], *(each for extra in wanted for each in extras[extra])]


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
