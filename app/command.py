"""The `recoquest` command; where a package is missing, it says which extra brings it.

Nothing here needs more than Python itself, since the package can be installed without any extra.
"""

from training.common.errors import what_to_install


def run() -> None:
    """Run the command line."""
    try:
        from app.cli.main import run as command
    except ModuleNotFoundError as error:
        raise SystemExit(what_to_install(error) or error) from None
    command()
