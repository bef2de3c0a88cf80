"""Files of folders: images, and what systems, programs and other formats put next to them."""

import os
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.needed import needed_module
from tests.training.importing.trees import imported
from training.common.errors import DataError
from training.imaging.formats import READABLE_SUFFIXES
from training.importing.files import find_files

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
AVIF = b"\0\0\0\x1cftypavif\0\0\0\0mif1avifmiaf"


def folder_of(folder: Path, *names: str, content: bytes = b"") -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, reason in sorted(reasons.items()):
        found.setdefault(reason, []).append(path)
    return found


def test_folders_of_systems_are_left_out_with_all_that_lies_in_them(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        *("a.jpg", "sub/b.PNG", "@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "@eaDir/a.jpg/x.jpg"),
        *("#recycle/old.jpg", "c.png/d.jpg", "manifest.jsonl", "sub/manifest.jsonl"),
        *("sub/.thumbs/b.jpg", "__MACOSX/._a.jpg", "$RECYCLE.BIN/S-1/c.jpg", "System Volume Information/x"),
        *("Network Trash Folder/a.jpg", "sub/~snapshot/a.jpg", "RECYCLER/a.jpg"),
        *("._a.jpg", "sub/Thumbs.db", ".DS_Store", "desktop.ini"),
    )
    assert by_reason(find_files(folder).reasons) == {
        "": ["a.jpg", "c.png/d.jpg", "sub/b.PNG"],
        ".jsonl files, which are no images that can be read": ["sub/manifest.jsonl"],
        "files in folders named '@eaDir'": ["@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "@eaDir/a.jpg/x.jpg"],
        "files in folders named '#recycle'": ["#recycle/old.jpg"],
        "files in folders named '.thumbs'": ["sub/.thumbs/b.jpg"],
        "files in folders named '__MACOSX'": ["__MACOSX/._a.jpg"],
        "files in folders named '$RECYCLE.BIN'": ["$RECYCLE.BIN/S-1/c.jpg"],
        "files in folders named 'System Volume Information'": ["System Volume Information/x"],
        "files in folders named 'Network Trash Folder'": ["Network Trash Folder/a.jpg"],
        "files in folders named '~snapshot'": ["sub/~snapshot/a.jpg"],
        "files in folders named 'RECYCLER'": ["RECYCLER/a.jpg"],
        "hidden files and files of systems": [".DS_Store", "._a.jpg", "desktop.ini", "sub/Thumbs.db"],
    }


def test_every_ending_that_can_be_read_is_an_image_in_any_case(tmp_path: Path) -> None:
    names = [f"{number}{suffix}" for number, suffix in enumerate(READABLE_SUFFIXES)]
    shouted = [f"shouted-{name.upper()}" for name in names]
    folder = folder_of(tmp_path, *names, *shouted)
    assert find_files(folder).images() == sorted([*names, *shouted])
    assert {".jpg", ".jfif", ".jpe", ".mpo", ".avif", ".tiff"} <= set(READABLE_SUFFIXES)


WITHOUT_EXTRA = ".heic files, which cannot be read (install recoquest[heic], or convert them to JPEG or PNG)"


def test_other_endings_are_left_out_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    folder = folder_of(tmp_path, "b.HEIC", "c.dcm", "notes.txt", "README", "odd.")
    folder_of(tmp_path, "a.heic", "a.avif", content=HEIC)
    folder_of(tmp_path, "b.avif", content=AVIF)
    folder_of(tmp_path, "cut.heic", content=HEIC[:12])
    folder_of(tmp_path, "cut.avif", content=AVIF[:12])
    # A JPEG file is read under any ending of an image.
    folder_of(tmp_path, "renamed.heic", "renamed.avif", content=b"\xff\xd8\xff\xe0")
    assert by_reason(find_files(folder).reasons) == {
        "": ["b.avif", "renamed.avif", "renamed.heic"],
        ".avif files that hold another format (convert them to JPEG or PNG)": ["a.avif"],
        ".avif files that are cut within their beginning": ["cut.avif"],
        WITHOUT_EXTRA: ["a.heic", "b.HEIC", "cut.heic"],
        ".dcm files, which an import of folders leaves out (`recoquest import dicom` takes them)": ["c.dcm"],
        ".txt files, which are no images that can be read": ["notes.txt"],
        "files without an ending": ["README", "odd."],
    }


def test_heic_files_are_images_with_the_extra(tmp_path: Path) -> None:
    needed_module("pi_heif", "pip install -c constraints.txt '.[heic]'")
    folder_of(tmp_path, "a.heic", "b.HIF", "c.jpg", content=HEIC)
    folder_of(tmp_path, "d.heic", content=b"no image")
    assert by_reason(find_files(tmp_path).reasons) == {
        "": ["a.heic", "b.HIF", "c.jpg"],
        ".heic files that hold another format (convert them to JPEG or PNG)": ["d.heic"],
    }


def test_links_pipes_and_broken_links(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", "a.jpg", "sub/b.jpg")
    (tmp_path / "here").symlink_to(folder, target_is_directory=True)
    (folder / "sub" / "circle").symlink_to(folder, target_is_directory=True)
    (folder / "linked.jpg").symlink_to(folder / "a.jpg")
    (folder / "gone.jpg").symlink_to(folder / "nowhere.jpg")
    (folder / "itself.jpg").symlink_to(folder / "itself.jpg")
    os.mkfifo(folder / "pipe.jpg")
    # The folder itself may be a link.
    found = find_files(tmp_path / "here")
    assert by_reason(found.reasons) == {
        "": ["a.jpg", "linked.jpg", "sub/b.jpg"],
        "links that lead to no file": ["gone.jpg", "itself.jpg"],
        "pipes, sockets and devices": ["pipe.jpg"],
    }
    assert found.folders == ["The folder 'sub/circle' is a link and was not followed; import it by itself."]


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens every folder; run as another user")
def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "a.jpg", "closed/b.jpg")
    (folder / "closed").chmod(0)
    found = find_files(folder)
    (folder / "closed").chmod(0o700)
    assert found.images() == ["a.jpg"]
    assert found.folders == ["The folder 'closed' cannot be opened: Permission denied."]


def test_names_that_no_manifest_can_have(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "sub\\a.jpg", unicodedata.normalize("NFD", "café.jpg"))
    (folder / os.fsdecode(b"caf\xe9.jpg")).touch()
    assert by_reason(find_files(folder).reasons) == {
        "": [unicodedata.normalize("NFD", "café.jpg")],
        "files with a backslash in their path (rename them)": ["sub\\a.jpg"],
        "files whose paths are not UTF-8 (rename them)": ["caf\udce9.jpg"],
    }


def test_archives_are_to_be_unpacked(tmp_path: Path) -> None:
    archive = folder_of(tmp_path, "a.jpg", "photos.zip", "b.tar.gz") / "photos.zip"
    assert by_reason(find_files(tmp_path).reasons) == {
        "": ["a.jpg"],
        ".gz files, which are not opened (unpack those that hold images)": ["b.tar.gz"],
        ".zip files, which are not opened (unpack those that hold images)": ["photos.zip"],
    }
    for layout in ("folder", "chexpert", "coco"):
        with pytest.raises(DataError, match=r"photos\.zip is a file, not a folder: unpack it, and give"):
            imported(layout, archive)
    with pytest.raises(DataError, match=r"a\.jpg is a file, not a folder: give the folder that has"):
        find_files(tmp_path / "a.jpg")
    with pytest.raises(DataError, match="There is no folder"):
        find_files(tmp_path / "photos")
