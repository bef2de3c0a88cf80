"""The `recoquest` command; where a package is missing, it says which extra brings it.

Nothing here needs more than Python itself, since the package can be installed without any extra.
"""

from typing import Final

# Extras that bring a package; everything else comes with `all`.
_EXTRAS: Final = {
    "faiss": ("all,cpu", "all,gpu"),
    "pi_heif": ("all,heic",),
    "psycopg": ("all,postgresql",),
    "pyarrow": ("all,huggingface",),
}


def what_to_install(error: ModuleNotFoundError) -> str | None:
    """Return the sentence about a missing package; None if a module of this project is missing."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "app", "index", "training"):
        return None
    commands = (f'`pip install "recoquest[{extras}]"`' for extras in _EXTRAS.get(package, ("all",)))
    return f"{package} is not installed: run {' or '.join(commands)}."


def run() -> None:
    """Run the command line."""
    try:
        from app.cli.main import run as command
    except ModuleNotFoundError as error:
        raise SystemExit(what_to_install(error) or error) from None
    command()
