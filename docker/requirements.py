"""Prints what `pip install PROJECT[EXTRA,...]` would need, without needing the project's code.

The image installs its dependencies before its code is copied, so that a changed line of code does not
install them again.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, *wanted: str) -> list[str]:
    """Returns the requirements of a project and of some of its extras, and of extras that these name.

    Raises:
        SystemExit: The project has no such extra.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for extra in wanted:
        if extra not in extras:
            raise SystemExit(f"{pyproject} has no extra {extra!r}; choose of: {', '.join(sorted(extras))}.")
    own = f"{project['name']}["
    found = [*project["dependencies"]]
    for each in (each for extra in wanted for each in extras[extra]):
        if each.startswith(own):
            inner = requirements(pyproject, *each.removeprefix(own).rstrip("]").split(","))
            found += [one for one in inner if one not in found]
        else:
            found.append(each)
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
