"""What `recoquest doctor` finds: versions, machine, home folder, catalogue, jobs, images and encoders."""

import hashlib
import os
import platform
import random
import re
import shlex
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import torch
from packaging.requirements import Requirement
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from app.encoding.threads import warm_up
from app.engine import open_engine
from app.health.readiness import active_generations
from app.settings import PREFIX, Settings, unknown_variables
from index.audit.dead_letters import count_dead_letters, dead_letters_of
from index.catalogue import Catalogue
from index.catalogue.collections import called_now, find_active
from index.catalogue.connections import is_disk_full
from index.catalogue.jobs import Job, get_job, list_jobs
from index.catalogue.tables import ImageRow
from index.engine import SearchEngine
from index.erasure import pending_erasures
from index.errors import CatalogueError, CatalogueSchemaError, DamagedCatalogueError, HomeError, StoreError
from index.files.bundles import check_digest
from index.files.home_identity import bind_identity
from index.generations.names import list_aliases
from index.home import Home
from index.keys.api_keys import EVERY_COLLECTION
from index.writes.vectors import count_lacking
from training.common.atomic import atomic_file
from training.common.errors import RecoquestError
from training.common.host import cores
from training.common.memory import free_memory
from training.models.bundle import read_bundle
from training.models.encoder import choose_device
from training.models.onnx import load_query_encoder


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: ok; doubtful: it works now but may fail; wrong: it doesn't work.
        found: Result, and a remedy unless all is well.
    """

    subject: str
    state: Literal["ok", "doubtful", "wrong"]
    found: str


_GIB: Final = 1 << 30
_LOW_MEMORY: Final = 2 * _GIB


def examine(settings: Settings) -> Iterator[Finding]:
    """Examine everything that the service needs; yields findings one by one.

    An older catalogue is brought up to date, as by every command.
    """
    yield _settings()
    yield examine_versions()
    yield _memory()
    for subject, look in (("device", _device), ("home", examine_home)):
        try:
            yield look(settings)
        except (RecoquestError, OSError) as error:
            yield Finding(subject, "wrong", str(error))
    yield from examine_indexed(settings)


def _settings() -> Finding:
    if unknown := unknown_variables():
        problem = f"{', '.join(map(_slip, unknown))}: not a setting, and without effect"
        advice = "mend the name or remove it; `recoquest settings` lists all settings"
        return Finding("settings", "doubtful", f"{problem}: {advice}.")
    return Finding("settings", "ok", "every RECOQUEST_ variable is a setting")


def _slip(name: str) -> str:
    """A variable that is no setting, with the setting that it may have been meant for."""
    near = get_close_matches(name, [PREFIX + field.upper() for field in Settings.model_fields], n=1)
    return f"{name} (for {near[0]}?)" if near else name


def _memory() -> Finding:
    free = free_memory()
    result = f"{free / _GIB:.1f} GiB free, {cores()} cores"
    if free < _LOW_MEMORY:
        return Finding("memory", "doubtful", f"{result}: an encoder and its index may need more.")
    return Finding("memory", "ok", result)


def _device(settings: Settings) -> Finding:
    device = choose_device(settings.device)
    # A driver that does not fit shows in the first computation only.
    try:
        torch.ones(8, device=device).sum().item()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        advice = f"update its driver to one for CUDA {torch.version.cuda}, or give --device cpu"
        if device.type != "cuda":
            advice = "give --device cpu, or cuda where there is a GPU"
        return Finding("device", "wrong", f"{device} does not compute: {reason}: {advice}.")
    if device.type != "cuda":
        return Finding("device", "ok", f"{device}; {torch.cuda.device_count()} GPUs are there")
    total = torch.cuda.get_device_properties(device).total_memory
    return Finding("device", "ok", f"{torch.cuda.get_device_name(device)}, {total / _GIB:.0f} GiB")


_SHOWN: Final = ("recoquest", "torch", "transformers", "onnxruntime", "sqlalchemy", "fastapi")
# Either brings the module; which is installed depends on the machine.
_FAISS: Final = ("faiss-cpu", "faiss-gpu")
# The first one with `pg_current_snapshot`.
_OLDEST_POSTGRESQL: Final = 13


def examine_versions() -> Finding:
    """Check that the requirements of recoquest are installed, in the required versions."""
    if not any(map(_installed, _FAISS)):
        advice = 'run `pip install -c constraints.txt ".[cpu]"` in the checkout'
        return Finding("versions", "wrong", f"faiss is not installed: {advice}.")
    unmet = {}
    for needed in _requirements():
        version = _installed(needed.name)
        if version is None or not needed.specifier.contains(version, prereleases=True):
            unmet[needed] = version
    if unmet:
        described = ", ".join(
            f"{needed.name} {version or 'is not installed'} ({needed.specifier} is needed)"
            for needed, version in unmet.items()
        )
        requirements = " ".join(shlex.quote(f"{needed.name}{needed.specifier}") for needed in unmet)
        advice = f"{described}: run `pip install {requirements}`."
        return Finding("versions", "wrong" if None in unmet.values() else "doubtful", advice)
    shown = [f"{name} {version}" for name in (*_SHOWN, *_FAISS) if (version := _installed(name))]
    return Finding("versions", "ok", f"Python {platform.python_version()}, {', '.join(shown)}")


def judge_postgresql(where: str, version: str) -> Finding:
    """Check that a PostgreSQL is new enough, by its reported version, such as `15.14 (Debian)`."""
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < _OLDEST_POSTGRESQL:
        advice = f"use PostgreSQL {_OLDEST_POSTGRESQL} or newer"
        return Finding("catalogue", "wrong", f"{where} is PostgreSQL {version}, too old: {advice}.")
    return Finding("catalogue", "ok", f"{where}, PostgreSQL {version}")


_SERVICE: Final = "serve"


def _requirements() -> Iterator[Requirement]:
    """Requirements of recoquest, of what a service needs, and of other extras that are fully installed."""
    try:
        every = [Requirement(line) for line in requires("recoquest") or ()]
        extras = metadata("recoquest").get_all("Provides-Extra", [])
    except PackageNotFoundError:
        # A checkout that was never installed has no metadata.
        return
    unconditional = [one for one in every if _applies(one, "")]
    yield from unconditional
    for extra in extras:
        needed = [one for one in every if _applies(one, extra) and one not in unconditional]
        if extra == _SERVICE or all(_installed(one.name) for one in needed):
            yield from needed


def _applies(needed: Requirement, extra: str) -> bool:
    return needed.marker is None or needed.marker.evaluate({"extra": extra})


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# Less than this is soon used up by a snapshot, a checkpoint or a log.
_LOW_DISK: Final = 5 * _GIB


def examine_home(settings: Settings) -> Finding:
    """Look whether the home folder can be written and has room, or can be made."""
    home = settings.home.absolute()
    if (file := file_in_the_way(home)) is not None:
        return Finding("home", "wrong", f"{file} is a file, not a folder: name another with --home.")
    if not home.is_dir():
        return Finding("home", "doubtful", f"{home} does not exist: `recoquest index` makes it.")
    probe = home / f".doctor-{os.getpid()}"
    try:
        with atomic_file(probe) as written:
            written.write(b"written by recoquest doctor")
    except OSError as error:
        if not is_disk_full(error):
            raise
        return Finding("home", "wrong", f"{home} cannot be written: the disk is full; free some space there.")
    finally:
        probe.unlink(missing_ok=True)
    result, free = f"{home} can be written", shutil.disk_usage(home).free
    for erasure in pending_erasures(home):
        result += f", but an erasure in {erasure.collection!r} is under way or was stopped (images: "
        result += f"{len(erasure.ids):,}): `recoquest erase {erasure.collection}` continues with it."
        return Finding("home", "doubtful", result)
    if letters := count_dead_letters(home):
        result += f", but the audit trail did not take {letters:,} events, which are in "
        result += f"{dead_letters_of(home)}: keep that file elsewhere, and report the error in it."
        return Finding("home", "doubtful", result)
    result += f", {free / _GIB:.1f} GiB free"
    if free < _LOW_DISK:
        return Finding("home", "doubtful", f"{result}: writes are refused when the disk is full.")
    return Finding("home", "ok", result)


def file_in_the_way(home: Path) -> Path | None:
    """The first part of the home folder's path that is not a folder."""
    there = next(path for path in (home.absolute(), *home.absolute().parents) if os.path.lexists(path))
    return None if there.is_dir() else there


# Files that are read; all are checked to exist.
_READ: Final = 200


def examine_indexed(settings: Settings) -> Iterator[Finding]:
    """Look at everything in the home folder and its catalogue."""
    home = settings.home
    if settings.database_url is None and not home.is_dir():
        if file_in_the_way(home) is None:
            yield Finding("catalogue", "doubtful", "nothing is indexed yet: `recoquest index` begins.")
        return
    try:
        engine = open_engine(settings, bound=False)
    except RecoquestError as error:
        yield _unusable(settings, error)
        return
    except OSError as error:
        yield Finding("catalogue", "wrong", f"the home folder {home} cannot be used: {error.strerror}.")
        return
    try:
        yield _catalogue(engine.home.catalogue)
        try:
            bind_identity(engine.home.catalogue, engine.home.store, settings.home)
        except HomeError as error:
            yield Finding("home and catalogue", "wrong", str(error))
        yield examine_jobs(engine.home.catalogue)
        names = engine.names()
        with engine.home.catalogue.read() as session:
            yield from examine_roles(settings, session, names)
            before = renamed(settings, session)
        yield examine_retraining(settings, names, before)
        for name in names:
            yield _collection(engine, name)
        yield _images(engine.home)
        yield from _encoders(engine, settings)
    except RecoquestError as error:
        yield _unusable(settings, error)
    finally:
        engine.close()


def _unusable(settings: Settings, error: RecoquestError) -> Finding:
    """Why there is no catalogue to look into, and what to do where the error does not say so."""
    own = settings.database_url is not None
    if isinstance(error, DamagedCatalogueError):
        other = "mend RECOQUEST_DATABASE_URL" if own else "name another with --home"
        advice = f"restore a backup into an empty home folder, or {other}"
    elif own and isinstance(error, CatalogueError) and not isinstance(error, CatalogueSchemaError):
        advice = "mend RECOQUEST_DATABASE_URL, or start that database"
    else:
        return Finding("catalogue", "wrong", str(error))
    # Drivers say more in further lines, after what matters.
    reason = str(error).partition("\n")[0].rstrip(".")
    return Finding("catalogue", "wrong", f"{reason}: {advice}.")


def _catalogue(catalogue: Catalogue) -> Finding:
    with catalogue.read() as session:
        if session.get_bind().dialect.name != "sqlite":
            answer = session.execute(text("SHOW server_version")).scalar_one()
            return judge_postgresql(catalogue.url, answer)
        answer = session.execute(text("PRAGMA quick_check(1)")).scalar_one()
    if answer != "ok":
        return Finding("catalogue", "wrong", f"{catalogue.url} is damaged ({answer}): restore a backup.")
    return Finding("catalogue", "ok", catalogue.url)


def _collection(engine: SearchEngine, name: str) -> Finding:
    subject = f"collection {name}"
    with engine.home.catalogue.read() as session:
        active = find_active(session, name)
        if active is None:
            return Finding(subject, "doubtful", "cannot be searched yet: run `recoquest index` for it again.")
        generation, _ = active
        missing = count_lacking(session, generation)
    count = engine.collection(name).count
    if missing:
        result = f"{missing:,} of {count:,} images have no vector: run `recoquest reindex` for it again."
        return Finding(subject, "doubtful", result)
    return Finding(subject, "ok", f"{count:,} images by {generation.model}")


def _images(home: Home) -> Finding:
    with home.catalogue.read() as session:
        digests = session.execute(select(ImageRow.sha256).distinct()).scalars().all()
    missing = [digest for digest in digests if not home.store.has(digest)]
    there = sorted(set(digests) - set(missing))
    read = random.Random(0).sample(there, min(_READ, len(there)))
    damaged = [digest for digest in read if not _is_intact(home, digest)]
    if missing or damaged:
        result = f"{len(missing):,} of {len(digests):,} files are missing"
        if damaged:
            result += f", {len(damaged):,} of {len(read):,} that were read are damaged"
        return Finding("images", "wrong", f"{result}: index their data again, or restore a backup.")
    return Finding("images", "ok", f"{len(digests):,} files are there, {len(read):,} of them were read")


def _is_intact(home: Home, digest: str) -> bool:
    try:
        with home.store.path(digest).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except (StoreError, OSError):
        return False


def _encoders(engine: SearchEngine, settings: Settings) -> Iterator[Finding]:
    for digest, active in sorted({active.digest: active for active in active_generations(engine)}.items()):
        subject = f"encoder {active.model}"
        try:
            check_digest(read_bundle(active.bundle), digest)
            warm_up(load_query_encoder(active.bundle, settings.device))
        except (RecoquestError, RuntimeError) as error:
            yield Finding(subject, "wrong", str(error))
        else:
            yield Finding(subject, "ok", f"{digest[:12]} embeds")


# A worker claims waiting jobs, or sends a heartbeat, within 5 seconds.
_WATCH_SECONDS: Final = 8.0
_LOOK_SECONDS: Final = 0.25


def examine_jobs(catalogue: Catalogue, watch_s: float = _WATCH_SECONDS) -> Finding:
    """Look whether a worker is at work on what is to be done, for some seconds."""
    with catalogue.read() as session:
        running = list_jobs(session, state="running")
        queued = list_jobs(session, state="queued")
    result = f"{len(running):,} running, {len(queued):,} waiting"
    if not running and not queued:
        return Finding("jobs", "ok", result)
    if _is_worked_on(catalogue, [*running, *queued], watch_s):
        return Finding("jobs", "ok", f"{result}; a worker is at work")
    return Finding(
        "jobs",
        "doubtful",
        f"{result}, and no worker sent a heartbeat for {watch_s:.0f} seconds: run `recoquest worker` with "
        "the settings of the service (home folder and database).",
    )


def examine_retraining(
    settings: Settings, collections: Collection[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> Finding:
    """Check that workers can retrain the configured collections.

    `renamed` has the present names of collections by those that they had before.
    """
    named = settings.retrain
    timed = settings.retrain_at is not None or settings.retrain_feedback is not None
    unknown = [name for name in named if name not in collections]
    if unknown:
        shown = [f"{name} (called {renamed[name]} now)" if name in renamed else name for name in unknown]
        result = f"RECOQUEST_RETRAIN names {', '.join(shown)}, which is no collection and never retrained: "
        result += f"those here are {', '.join(sorted(collections)) or 'none'}."
    elif named and not timed:
        result = "RECOQUEST_RETRAIN alone does nothing: "
        result += "set RECOQUEST_RETRAIN_AT or RECOQUEST_RETRAIN_FEEDBACK."
    elif timed and not named:
        result = "when to retrain is set, but not what: name the collections in RECOQUEST_RETRAIN."
    else:
        return Finding("retraining", "ok", f"workers retrain {', '.join(named) or 'nothing'} by themselves")
    return Finding("retraining", "doubtful", result)


def _is_worked_on(catalogue: Catalogue, jobs: list[Job], watch_s: float) -> bool:
    """Whether a worker starts any of the jobs, or sends a heartbeat for one, within this time."""
    deadline, before = time.monotonic() + watch_s, {(job.id, job.attempts, job.beats) for job in jobs}
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        with catalogue.read() as session:
            now = [get_job(session, job.id) for job in jobs]
        if not before.issuperset((job.id, job.attempts, job.beats) for job in now):
            return True
    return False


def renamed(settings: Settings, session: Session) -> dict[str, str]:
    """Return the present names of renamed collections by those that the settings have."""
    named = {name for grants in settings.oidc_roles.values() for name in grants} | {*settings.retrain}
    current_names = {name: called_now(session, name) for name in sorted(named)}
    return {name: now for name, now in current_names.items() if now is not None}


def examine_roles(settings: Settings, session: Session, collections: list[str]) -> Iterator[Finding]:
    """Look whether the collections are there in which groups of the identity provider have roles."""
    named = {name for grants in settings.oidc_roles.values() for name in grants} - {EVERY_COLLECTION}
    if not named:
        return
    before = renamed(settings, session)
    behind = {alias.name: alias.collection for alias in list_aliases(session)}
    wrong = [_words(name, before, behind) for name in sorted(named - {*collections})]
    if wrong:
        result = f"RECOQUEST_OIDC_ROLES names {'; '.join(wrong)}: write the names that collections have."
        yield Finding("roles of groups", "doubtful", result)
    else:
        yield Finding("roles of groups", "ok", "every collection that RECOQUEST_OIDC_ROLES names is there")


def _words(name: str, before: Mapping[str, str], behind: Mapping[str, str]) -> str:
    if name in before:
        return f"{name!r}, which is called {before[name]!r} now, and in which no role holds any more"
    if name in behind:
        return f"{name!r}, which is an alias of {behind[name]!r}, and gives no role there"
    return f"{name!r}, which is no collection, and whose roles apply to any collection that gets that name"
