"""`recoquest settings`, `doctor`, `tidy`, `backup` and `restore`: check an installation and look after it."""

import json
import re
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.errors import stoppable
from app.cli.options import AsJson, Device, EnvFile, Home, Installation, first_of, opened

if TYPE_CHECKING:
    from app.settings import Settings

_MARKS: Final = {"ok": "ok", "doubtful": "??", "wrong": "!!"}


def settings(env_file: EnvFile = None, as_json: AsJson = False) -> None:
    """Print every setting as it holds here, without passwords and keys."""
    from app.settings import PREFIX, as_text, load_settings

    loaded = load_settings(env_file)
    shown = loaded.printable()
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    for name, value in shown.items():
        mark = "" if name in loaded.model_fields_set else "  # default"
        typer.echo(f"{PREFIX}{name.upper()}={'' if value is None else as_text(value)}{mark}")


def doctor(
    home: Home = None, device: Device = None, env_file: EnvFile = None, as_json: AsJson = False
) -> None:
    """Look at settings, machine, disk, jobs, images and encoders; ends with 1 if anything is wrong."""
    from app.settings import load_settings

    loaded = load_settings(env_file, home=home, device=device)
    # A wrong setting is named before much is imported.
    from app.health.doctor import examine

    findings = []
    for finding in examine(loaded):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{_MARKS[finding.state]} {finding.subject}: {finding.found}")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)


def tidy(home: Home = None) -> None:
    """Remove old generations, reports, folders of jobs, and files that are unused or unfinished."""
    from app.audit.trail import ImageChanges
    from app.generations.build import drop_superseded_generations, name_kept
    from app.jobs.folder import remove_old_folders
    from index.files.stale import UNTOUCHED_SECONDS, remove_stale, unfinished
    from index.generations.activation import drop_old_generations
    from index.reports import forget_waiting
    from index.writes.deletion import collect_garbage

    with opened(home=home) as installation:
        settings, engine = installation.settings, installation.engine
        for collection in engine.names():
            if dropped := drop_old_generations(engine.home, collection, settings.keep_generations):
                typer.echo(f"{collection}: dropped generation {', '.join(map(str, dropped))}.")
            name_kept(engine, collection, settings.keep_generations)
            days = settings.keep_waiting_reports_days
            record = ImageChanges(settings, engine.home.catalogue, collection, "tidy").forgotten
            if days and (late := forget_waiting(engine.home, collection, days, record)):
                typer.echo(f"{collection}: forgot {late:,} reports that waited for their images.")
        for collection, number in drop_superseded_generations(settings, engine.home):
            typer.echo(f"{collection}: dropped generation {number}, which was never activated.")
        if folders := remove_old_folders(settings, engine.home.catalogue):
            typer.echo(f"Removed what was written by job {', '.join(map(str, folders))}.")
        collect_garbage(engine.home)
        if removed := remove_stale(unfinished(settings.home), UNTOUCHED_SECONDS):
            typer.echo(f"Removed {removed:,} unfinished files of processes that were killed.")
    typer.echo("Garbage is removed.")


_SHOWN: Final = 3
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
            help="Number of the folder's backups that stay; older ones are removed after a complete one.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Write collections, images and encoders into one file, while searches and writes continue."""
    from index.backup import write_backup
    from index.backup.contents import sealed_keys

    if (file is None) == (folder is None):
        raise typer.BadParameter("Name either a file or, by --folder, a folder.")
    if keep is not None and folder is None:
        raise typer.BadParameter("--keep is about backups of a --folder.")
    if folder is not None and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is no folder: make it first.")
    if folder is not None:
        file = folder / f"{_NAME}{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"
    assert file is not None
    with opened(home=home) as installation:
        settings = installation.settings
        with stoppable("Stopped. There is no backup."):
            keys = sealed_keys(_keys(settings), _passphrase(settings))
            summary = write_backup(installation.engine.home, file, keys=keys)
        installation.record("backup", "backup", file=str(file), images=summary.images)
    counts, size = summary.collections, file.stat().st_size / 2**20
    typer.echo(f"{file}: {len(counts)} collections, {sum(counts.values()):,} images, {size:,.1f} MiB.")
    _warn(summary.missing)
    if folder is not None and keep is not None:
        # The times in their names sort as texts; files of other names stay.
        written = sorted(path for path in folder.glob(f"{_NAME}*.tar") if _SCHEDULED.fullmatch(path.name))
        for path in written[:-keep]:
            path.unlink(missing_ok=True)
            typer.echo(f"{path}: removed.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `recoquest backup` has written.")],
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Go on where keys of the home that was backed up are lost.")
    ] = False,
    home: Home = None,
) -> None:
    """Bring a backup back, where nothing is indexed yet; the database may be another one."""
    from sqlalchemy import make_url

    from app.engine import open_engine
    from app.settings import load_settings
    from index.backup import bring_backup_keys, restore_backup
    from index.files.home_identity import bind_identity

    settings = load_settings(home=home)
    url = make_url(settings.catalogue_url)
    is_new = url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()
    if is_new and not without_keys:
        # Refused before a catalogue is made; there is no trail of its own that would keep its key.
        bring_backup_keys(file, _keys(settings), _passphrase(settings), settings.home)
    with closing(open_engine(settings, bound=False)) as engine:
        with stoppable("Stopped. Nothing can be searched yet; the same command begins again."):
            keys = None if without_keys else _keys(settings)
            summary = restore_backup(engine.home, file, keys=keys, passphrase=_passphrase(settings))
        # Before, the home may have had the images of a catalogue that is lost.
        bind_identity(engine.home.catalogue, engine.home.store, settings.home)
        Installation(settings, engine).record("restore", "restore", file=str(file), images=summary.images)
    for name, count in summary.collections.items():
        typer.echo(f"{name}: {count:,} images.")
    _warn(summary.missing)


def _keys(settings: "Settings") -> dict[str, bytes]:
    """Existing secrets, by their files, that a restored home needs; sessions can begin again."""
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
    secret = settings.backup_passphrase
    return None if secret is None else secret.get_secret_value()


def _warn(missing: list[str]) -> None:
    if missing:
        typer.echo(
            f"Files of images that were missing or damaged and are not in the backup: {len(missing):,} "
            f"({first_of(missing, _SHOWN)}). Index their data again to bring them back.",
            err=True,
        )
