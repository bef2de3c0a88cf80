"""`recoquest backup` and `recoquest restore`: everything that can be searched in one file, and back."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable
from app.cli.options import Home, indexed

_SHOWN = 3


def backup(
    file: Annotated[Path, typer.Argument(help="The file to be written, such as backup.tar.")],
    home: Home = None,
) -> None:
    """Write collections, images and encoders into one file, while searches and writes go on."""
    from app.audit.trail import record_command
    from app.settings import load_settings
    from index.backup import write_backup

    settings = load_settings(home=home)
    with indexed(settings) as engine:
        with stoppable("Stopped. There is no backup."):
            summary = write_backup(engine.home, file)
        record_command(
            settings, engine.home.catalogue, "backup", "backup", file=str(file), images=summary.images
        )
    counts, size = summary.collections, file.stat().st_size / 2**20
    typer.echo(f"{file}: {len(counts)} collections, {sum(counts.values()):,} images, {size:,.1f} MiB.")
    _warn(summary.missing)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `recoquest backup` has written.")],
    home: Home = None,
) -> None:
    """Bring a backup back, where nothing is indexed yet; the database may be another one."""
    from app.audit.trail import record_command
    from app.engine import bind_home, open_unbound
    from app.settings import load_settings
    from index.backup import restore_backup

    settings = load_settings(home=home)
    engine = open_unbound(settings)
    try:
        with stoppable("Stopped. Nothing can be searched yet; the same command begins again."):
            summary = restore_backup(engine.home, file)
        # Before, the home may have had the images of a catalogue that is lost.
        bind_home(engine.home, settings)
        record_command(
            settings, engine.home.catalogue, "restore", "restore", file=str(file), images=summary.images
        )
    finally:
        engine.close()
    for name, count in summary.collections.items():
        typer.echo(f"{name}: {count:,} images.")
    _warn(summary.missing)


def _warn(missing: list[str]) -> None:
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        typer.echo(
            f"The files of {len(missing):,} images were missing before the backup ({shown}): index their "
            "data again to bring them back.",
            err=True,
        )
