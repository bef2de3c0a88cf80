"""The examination of what is in the catalogue: jobs, collections, their files and their encoders."""

import hashlib
import random
from collections.abc import Iterator
from typing import Final

from sqlalchemy import select, text

from app.encoding.passes import warm_up
from app.engine import bind_home, open_unbound
from app.health.doctor.finding import Finding
from app.health.doctor.home import file_in_the_way
from app.health.doctor.jobs import examine_jobs, examine_retraining
from app.health.doctor.names import examine_roles, renamed
from app.health.doctor.versions import judge_postgresql
from app.settings import Settings
from index.catalogue.collections import Generation, find_generation
from index.catalogue.tables import CollectionRow, ImageRow
from index.engine import SearchEngine
from index.errors import CatalogueError, CatalogueSchemaError, DamagedCatalogueError, HomeError, StoreError
from index.files.bundles import check_digest
from index.home import Home
from index.writes.vectors import count_missing_images
from training.common.errors import RecoquestError
from training.models.bundle import read_bundle
from training.models.onnx.loading import load_query_encoder

# Files that are read whole; all are looked for.
_READ: Final = 200


def examine_indexed(settings: Settings) -> Iterator[Finding]:
    """Look at everything in the home folder and its catalogue."""
    home = settings.home
    if settings.database_url is None and not home.is_dir():
        if file_in_the_way(home) is None:
            yield Finding("catalogue", "doubtful", "nothing is indexed yet: `recoquest index` begins.")
        return
    try:
        engine = open_unbound(settings)
    except RecoquestError as error:
        yield _unusable(settings, error)
        return
    except OSError as error:
        yield Finding("catalogue", "wrong", f"the home folder {home} cannot be used: {error.strerror}.")
        return
    try:
        yield from _catalogue(engine.home)
        yield from _identity(engine.home, settings)
        yield examine_jobs(engine.home.catalogue)
        names = engine.names()
        with engine.home.catalogue.read() as session:
            yield from examine_roles(settings, session, names)
            before = renamed(settings, session)
        yield examine_retraining(settings, names, before)
        for name in names:
            yield _collection(engine, name)
        yield _images(engine.home)
        yield from _encoders(engine.home, settings)
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


def _catalogue(home: Home) -> Iterator[Finding]:
    url = home.catalogue.url
    with home.catalogue.read() as session:
        if session.get_bind().dialect.name == "sqlite":
            said = session.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if said != "ok":
                yield Finding("catalogue", "wrong", f"{url} is damaged ({said}): restore a backup.")
                return
            yield Finding("catalogue", "ok", url)
        else:
            yield judge_postgresql(url, session.execute(text("SHOW server_version")).scalar_one())


def _identity(home: Home, settings: Settings) -> Iterator[Finding]:
    try:
        bind_home(home, settings)
    except HomeError as error:
        yield Finding("home and catalogue", "wrong", str(error))


def _collection(engine: SearchEngine, name: str) -> Finding:
    subject = f"collection {name}"
    with engine.home.catalogue.read() as session:
        key = session.execute(select(CollectionRow.id).where(CollectionRow.name == name)).scalar_one_or_none()
        generation = None if key is None else find_generation(session, key, "active")
        if generation is None:
            return Finding(subject, "doubtful", "cannot be searched yet: run `recoquest index` for it again.")
        missing = count_missing_images(session, generation)
    info = engine.collection(name)
    if missing:
        return Finding(
            subject,
            "doubtful",
            f"{missing:,} of {info.count:,} images have no vector: run `recoquest reindex` for it again.",
        )
    return Finding(subject, "ok", f"{info.count:,} images by {generation.model}")


def _images(home: Home) -> Finding:
    with home.catalogue.read() as session:
        digests = session.execute(select(ImageRow.sha256).distinct()).scalars().all()
    missing = [digest for digest in digests if not home.store.has(digest)]
    there = sorted(set(digests) - set(missing))
    read = random.Random(0).sample(there, min(_READ, len(there)))
    damaged = [digest for digest in read if not _whole(home, digest)]
    if missing or damaged:
        found = f"{len(missing):,} of {len(digests):,} files are missing"
        if damaged:
            found += f", {len(damaged):,} of {len(read):,} that were read are damaged"
        return Finding("images", "wrong", f"{found}: index their data again, or restore a backup.")
    return Finding("images", "ok", f"{len(digests):,} files are there, {len(read):,} of them were read")


def _whole(home: Home, digest: str) -> bool:
    try:
        with home.store.path(digest).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except (StoreError, OSError):
        return False


def _encoders(home: Home, settings: Settings) -> Iterator[Finding]:
    """Load the encoder of every active generation and embed with it."""
    actives: dict[str, Generation] = {}
    with home.catalogue.read() as session:
        for key in session.execute(select(CollectionRow.id)).scalars().all():
            generation = find_generation(session, key, "active")
            if generation is not None:
                actives[generation.digest] = generation
    for digest, generation in sorted(actives.items()):
        subject = f"encoder {generation.model}"
        folder = home.bundles_folder / digest
        try:
            check_digest(read_bundle(folder), digest)
            warm_up(load_query_encoder(folder, settings.device))
        except (RecoquestError, RuntimeError) as error:
            yield Finding(subject, "wrong", str(error))
        else:
            yield Finding(subject, "ok", f"{digest[:12]} embeds")
