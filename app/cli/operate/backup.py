"""`recoquest backup` and `recoquest restore`: everything that can be searched in one file, and back."""

import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.errors import stoppable
from app.cli.options import Home, first_of, indexed

if TYPE_CHECKING:
    from app.settings import Settings

_SHOWN = 3
_NAME: Final = "recoquest-"
_SCHEDULED: Final = re.compile(_NAME + r"\d{8}T\d{6}Z\.tar")


def backup(
    file: Annotated[
        Path | None, typer.Argument(help="The file to be written, such as backup.tar.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder instead: the file in it is named by its time.", show_default=False),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of the folder's backups that stay; older ones go when the new one is whole.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Write collections, images and encoders into one file, while searches and writes go on."""
    from app.audit.trail import record_command
    from app.settings import load_settings
    from index.backup import write_backup
    from index.backup.contents import sealed_keys

    settings = load_settings(home=home)
    file = _place(file, folder, keep)
    with indexed(settings) as engine:
        with stoppable("Stopped. There is no backup."):
            keys = sealed_keys(_keys(settings), _passphrase(settings))
            summary = write_backup(engine.home, file, keys=keys)
        record_command(
            settings, engine.home.catalogue, "backup", "backup", file=str(file), images=summary.images
        )
    counts, size = summary.collections, file.stat().st_size / 2**20
    typer.echo(f"{file}: {len(counts)} collections, {sum(counts.values()):,} images, {size:,.1f} MiB.")
    _warn(summary.missing)
    if folder is not None and keep is not None:
        _remove_old(folder, keep)


def _place(file: Path | None, folder: Path | None, keep: int | None) -> Path:
    """Path of the file that is asked for."""
    if (file is None) == (folder is None):
        raise typer.BadParameter("Name either a file or, by --folder, a folder.")
    if file is not None:
        if keep is not None:
            raise typer.BadParameter("--keep is about backups of a --folder.")
        return file
    assert folder is not None
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is no folder: make it first.")
    return folder / f"{_NAME}{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"


def _remove_old(folder: Path, keep: int) -> None:
    """Remove backups of the folder but for the newest `keep`; files of other names stay."""
    # The times in their names sort as texts.
    written = sorted(path for path in folder.glob(f"{_NAME}*.tar") if _SCHEDULED.fullmatch(path.name))
    for path in written[:-keep]:
        path.unlink(missing_ok=True)
        typer.echo(f"{path}: removed.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `recoquest backup` has written.")],
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Go on where keys of the home that was backed up are lost."),
    ] = False,
    home: Home = None,
) -> None:
    """Bring a backup back, where nothing is indexed yet; the database may be another one."""
    from app.audit.trail import record_command
    from app.engine import bind_home, open_unbound
    from app.settings import load_settings
    from index.backup import restore_backup

    settings = load_settings(home=home)
    with closing(open_unbound(settings)) as engine:
        with stoppable("Stopped. Nothing can be searched yet; the same command begins again."):
            keys = None if without_keys else _keys(settings)
            summary = restore_backup(engine.home, file, keys=keys, passphrase=_passphrase(settings))
        # Before, the home may have had the images of a catalogue that is lost.
        bind_home(engine.home, settings)
        record_command(
            settings, engine.home.catalogue, "restore", "restore", file=str(file), images=summary.images
        )
    for name, count in summary.collections.items():
        typer.echo(f"{name}: {count:,} images.")
    _warn(summary.missing)


def _keys(settings: "Settings") -> dict[str, bytes]:
    """Secrets by their files that a restored home needs, of those that are there; sessions can begin anew."""
    from index.audit import chain as audit
    from index.backup.contents import AUDIT_SETTING
    from index.keys import home_secret as patients

    keys = {}
    if settings.audit_key is not None:
        keys[AUDIT_SETTING] = settings.audit_key.get_secret_value().encode()
    elif (settings.home / audit.KEY_FILE).exists():
        keys[audit.KEY_FILE] = audit.home_key(settings.home)
    if (settings.home / patients.FILE).exists():
        keys[patients.FILE] = patients.patient_key(settings.home)
    return keys


def _passphrase(settings: "Settings") -> str | None:
    given = settings.backup_passphrase
    return None if given is None else given.get_secret_value()


def _warn(missing: list[str]) -> None:
    if missing:
        typer.echo(
            f"Files of images that were missing or damaged and are not in the backup: {len(missing):,} "
            f"({first_of(missing, _SHOWN)}). Index their data again to bring them back.",
            err=True,
        )
