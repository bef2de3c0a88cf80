"""A catalogue and a home folder that belong together, or do not."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select

from index.backup import restore_backup, write_backup
from index.catalogue.tables import CollectionRow, HomeRow
from index.engine import SearchEngine
from index.errors import HomeError
from index.files.home_identity import FILE, bind_identity
from index.writes.live import remove_images
from tests.index.homes import execute, open_home
from training.common.manifest import Manifest
from training.models.encoder import Encoder


def bind(engine: SearchEngine, home: Path) -> None:
    bind_identity(engine.home.catalogue, engine.home.store, home)


def noted(engine: SearchEngine) -> str | None:
    with engine.home.catalogue.read() as session:
        return session.execute(select(HomeRow.uid)).scalar_one_or_none()


def written(home: Path) -> str:
    return (home / FILE).read_text().strip()


def is_refused(engine: SearchEngine, home: Path, why: str) -> None:
    before = noted(engine), (home / FILE).exists()
    with pytest.raises(HomeError, match=why):
        bind(engine, home)
    assert (noted(engine), (home / FILE).exists()) == before


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bound(indexed: SearchEngine, home: Path) -> SearchEngine:
    """A home with images that has its identity."""
    bind(indexed, home)
    return indexed


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[SearchEngine, Path]]:
    """Another home, with nothing in it."""
    engine = open_home(tmp_path / "other")
    yield engine, tmp_path / "other"
    engine.close()


def test_a_new_home_gets_an_identity_once(engine: SearchEngine, home: Path, catalogue_url: str) -> None:
    home.mkdir(exist_ok=True)
    bind(engine, home)
    uid = noted(engine)
    assert uid is not None
    assert written(home) == uid
    again = open_home(home, catalogue_url)
    bind(again, home)
    assert (noted(again), written(home)) == (uid, uid)
    again.close()


@pytest.mark.parametrize("lost", ["file", "row"])
def test_a_process_that_was_killed_between_the_two_is_made_up_for(
    bound: SearchEngine, home: Path, catalogue_url: str, lost: str
) -> None:
    uid = noted(bound)
    if lost == "row":
        execute(bound, delete(HomeRow))
    else:
        (home / FILE).unlink()
    late = open_home(home, catalogue_url)
    bind(late, home)
    assert (noted(late), written(home)) == (uid, uid)
    late.close()


def test_images_of_another_catalogue_are_not_taken_by_an_empty_one(
    indexed: SearchEngine, home: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        late = open_home(home, f"sqlite:///{tmp_path / 'empty.db'}")
        is_refused(
            late, home, r"empty\.db is empty, and .*home has images of another one: bring that one back"
        )
        late.close()
        bind(indexed, home)


def test_a_catalogue_is_not_used_with_a_home_that_is_empty(
    bound: SearchEngine, home: Path, other: tuple[SearchEngine, Path]
) -> None:
    uid = noted(bound)
    shutil.rmtree(home / "images")
    (home / FILE).unlink()
    is_refused(bound, home, rf"has images, and no file of them is in .*home: .* write {uid} into .*identity")
    (home / FILE).write_text(f"{uid}\n")
    bind(bound, home)


def test_a_home_of_another_catalogue_is_refused(
    indexed: SearchEngine, home: Path, other: tuple[SearchEngine, Path]
) -> None:
    engine, folder = other
    bind(engine, folder)
    bind(indexed, home)
    shutil.copy(home / FILE, folder / FILE)
    is_refused(engine, folder, "belongs to another catalogue than .*: give the right --home")


@pytest.mark.parametrize("removed", [0, 20])
def test_an_old_home_gets_one_where_catalogue_and_folder_agree_also_if_all_images_were_removed(
    indexed: SearchEngine, home: Path, manifest: Manifest, removed: int
) -> None:
    remove_images(indexed.home, "c", [record.id for record in manifest.records[:removed]])
    bind(indexed, home)
    assert noted(indexed) == written(home)


@pytest.mark.parametrize("what", ["moved", "replaced"])
def test_writes_are_refused_once_the_home_is_elsewhere(
    bound: SearchEngine, home: Path, other: tuple[SearchEngine, Path], what: str
) -> None:
    bind(*other)
    away = home.with_name("away")
    home.rename(away)
    if what == "replaced":
        shutil.copytree(other[1], home)
    with pytest.raises(HomeError, match="was moved or replaced while this process runs"):
        remove_images(bound.home, "c", ["image-003"])
    shutil.rmtree(home, ignore_errors=True)
    away.rename(home)
    assert remove_images(bound.home, "c", ["image-003"]) == ["image-003"]


def test_writes_are_refused_once_the_file_of_the_catalogue_is_another(
    tmp_path: Path, encoder: Encoder, manifest: Manifest
) -> None:
    home = tmp_path / "sqlite"
    engine = open_home(home)
    bind(engine, home)
    shutil.copy(home / "catalogue.db", home / "copy.db")
    (home / "copy.db").replace(home / "catalogue.db")
    with pytest.raises(HomeError, match="was moved or replaced"), engine.home.catalogue.write() as session:
        session.add(CollectionRow(name="lost", sequence=1))
    engine.close()


@pytest.mark.slow
def test_a_folder_that_is_mounted_anew_is_still_the_one_of_a_server(postgresql_url: str, home: Path) -> None:
    engine = open_home(home, postgresql_url)
    home.mkdir()
    bind(engine, home)
    shutil.copytree(home, home.with_name("mounted"))
    shutil.rmtree(home)
    home.with_name("mounted").rename(home)
    execute(engine, insert(CollectionRow).values(name="c", sequence=1))
    engine.close()


def test_a_backup_brings_no_identity_along(
    bound: SearchEngine, other: tuple[SearchEngine, Path], tmp_path: Path
) -> None:
    write_backup(bound.home, tmp_path / "backup.tar", show_progress=False)
    engine, folder = other
    restore_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    bind(engine, folder)
    assert noted(engine) == written(folder) != noted(bound)


def test_a_catalogue_that_was_lost_is_restored_into_its_home(
    bound: SearchEngine, home: Path, tmp_path: Path
) -> None:
    write_backup(bound.home, tmp_path / "backup.tar", show_progress=False)
    late = open_home(home, f"sqlite:///{tmp_path / 'late.db'}")
    restore_backup(late.home, tmp_path / "backup.tar", show_progress=False)
    bind(late, home)
    assert noted(late) == written(home)
    late.close()
