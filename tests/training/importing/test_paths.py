"""Names of images in tables, and ids of images."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.image_files import write_photo
from training.importing.files import find_files
from training.importing.paths import PathFinder, make_ids

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "é/café.jpg") for form in ("NFC", "NFD"))


def finder_of(folder: Path, *names: str) -> PathFinder:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_photo(path)
    return PathFinder(folder, find_files(folder).reasons)


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ("2.jpg", "2.jpg"),
        ("2.jpg", "./2.jpg"),
        ("sub/2.jpg", "sub//2.jpg"),
        ("sub/2.jpg", "sub\\2.jpg"),
        ("sub/2.jpg", ".\\sub\\2.jpg"),
        ("sub/2.jpg", "photos/sub/2.jpg"),
        ("sub/2.jpg", "photos\\sub\\2.jpg"),
        (DECOMPOSED, COMPOSED),
        (COMPOSED, DECOMPOSED),
        (DECOMPOSED, COMPOSED.replace("/", "\\")),
        (unicodedata.normalize("NFD", "é/") + "café.jpg", COMPOSED),
        (".hidden/2.jpg", ".hidden/2.jpg"),
    ],
)
def test_one_file_by_its_spellings(tmp_path: Path, there: str, name: str) -> None:
    assert finder_of(tmp_path / "photos", there, "other.jpg").find(name) == there


def test_the_name_as_it_is_written_goes_first(tmp_path: Path) -> None:
    names = (COMPOSED, DECOMPOSED, "photos/2.jpg", "2.jpg", "a\\b.jpg", "a/b.jpg")
    finder = finder_of(tmp_path / "photos", *names)
    assert [finder.find(name) for name in names] == list(names)
    assert finder.find(str(tmp_path / "photos" / "a" / "b.jpg")) == "a/b.jpg"


@pytest.mark.parametrize("name", ["3.jpg", "", ".", "sub", "a\0.jpg", "x" * 5000])
def test_what_is_no_file_is_not_found(tmp_path: Path, name: str) -> None:
    assert finder_of(tmp_path, "2.jpg", "sub/1.jpg").find(name) is None


def test_the_only_image_of_a_name_without_its_ending(tmp_path: Path) -> None:
    finder = finder_of(
        tmp_path / "photos", "1.jpg", "sub/ISIC_2.JPG", "a.b.png", "3.jpg", "3.png", "4.txt", DECOMPOSED
    )
    for name, path in (
        *(("1", "1.jpg"), ("sub\\ISIC_2", "sub/ISIC_2.JPG"), ("photos/1", "1.jpg"), ("a.b", "a.b.png")),
        *(("3", None), ("4", None), ("1.png", None), ("ISIC_2", None), ("", None), ("a", None)),
        (COMPOSED.removesuffix(".jpg"), DECOMPOSED),
    ):
        assert finder.find(name) == path


def test_files_that_look_alike_in_the_likest_folder(tmp_path: Path) -> None:
    finder = finder_of(tmp_path, "a/x/1.jpg", "b/x/1.jpg", "b/y/1.JPG", "1.png", "sub/Photo.JPG", "notes.txt")
    for name, alike in {
        "photo.jpg": ["sub/Photo.JPG"],
        "other\\photo": ["sub/Photo.JPG"],
        "notes.txt": [],
        "b/x/1": ["b/x/1.jpg"],
        "y\\1.jpg": ["b/y/1.JPG"],
        "B/X/1.JPG": ["b/x/1.jpg"],
        "x/1.gif": ["a/x/1.jpg", "b/x/1.jpg"],
        "1": ["1.png", "a/x/1.jpg", "b/x/1.jpg", "b/y/1.JPG"],
    }.items():
        assert finder.like(name) == alike


def test_lines_that_are_rows(tmp_path: Path) -> None:
    finder = finder_of(tmp_path, "2.jpg", "sub/1.jpg")

    def begins(line: str, column: int = 0) -> bool:
        return finder.begins_with_image(line, ",", column, 2)

    for line in ("2.jpg,a cat", '"sub\\1.jpg","a, cat"', "2.jpg", "missing.png,a cat"):
        assert begins(f"{line}\n")
    for line in ("and a cat", "the file missing.png is gone", ""):
        assert not begins(f"{line}\n")
    for line in ("7,2.jpg,a cat", '"a cat",2.jpg', '"a ""cat""","2.jpg"'):
        assert begins(f"{line}\n", column=1)
    for line in ('runs",2.jpg', '","2.jpg"', '""","2.jpg"'):
        assert not begins(f"{line}\n", column=1)


def test_ids_are_paths_with_dashes_and_digits_where_two_would_be_the_same() -> None:
    assert make_ids(["a.jpg", "b/c.jpg"], [None, "own"]) == (["a.jpg", "own"], [])
    ids, changed = make_ids(["a-b.jpg", "a/b.jpg"], [None, None])
    assert (ids[0], ids[1][:4], ids[1][-4:], changed) == ("a-b.jpg", "a-b-", ".jpg", ["a/b.jpg"])
    assert make_ids(["a/b.jpg", "a-b.jpg"], [None, None])[0] == ids[::-1]
    # An id of the table is kept.
    ids, changed = make_ids(["a-b.jpg", "c.jpg"], [None, "a-b.jpg"])
    assert (ids[1], changed) == ("a-b.jpg", ["a-b.jpg"])
    assert ids[0] not in ("a-b.jpg", "")


def test_ids_of_paths_that_no_address_can_have() -> None:
    narrow = "Screenshot 2024-01-01 at 10.00.00\u202fAM.png"
    long = "/".join(["folder" * 10] * 10) + "/1.jpg"
    ids, _ = make_ids([narrow, long, " a.jpg", "x\ny.jpg"], [None] * 4)
    assert ids[0] == "Screenshot 2024-01-01 at 10.00.00_AM.png"
    assert len(ids[1]) == 255
    assert ids[2:] == ["a.jpg", "x_y.jpg"]


paths = st.lists(st.text(alphabet="ab-/.", min_size=1, max_size=5), unique=True, max_size=12)


@given(
    images=paths, given_ids=st.lists(st.sampled_from([None, None, "1", "2", "3"]), min_size=12, max_size=12)
)
def test_ids_are_unique(images: list[str], given_ids: list[str | None]) -> None:
    own = [name if name is None else f"{name}-{place}" for place, name in enumerate(given_ids)][: len(images)]
    ids, _ = make_ids(images, own)
    assert len(set(ids)) == len(images)
    assert all(name is None or name == made for name, made in zip(own, ids, strict=True))
    assert all("/" not in name for name in ids)


@pytest.mark.parametrize(
    "beginning",
    [
        *("C:\\Users\\x\\img\\", "/home/other/img/", "file:///home/o%20ther/", "https://example.org/data/"),
        *("\\\\nas\\share\\", "D:/", "other/", "s3://bucket/", "data\\img\\", "~/img/"),
    ],
)
@pytest.mark.parametrize("inner", ["", "images/"])
def test_paths_of_another_computer(tmp_path: Path, beginning: str, inner: str) -> None:
    names = ("1.jpg", "a/1.jpg", "a/b/2.jpg", "\xe9.jpg")
    finder = finder_of(tmp_path / "photos", *(inner + name for name in names), "x/1.jpg")
    slash = "\\" if "\\" in beginning else "/"
    written = [beginning + name.replace("/", slash) for name in names]
    finder.learn([*written, f"{beginning}gone.jpg"])
    assert [finder.find(name) for name in written] == [inner + name for name in names]
    assert finder.find(f"{beginning}gone.jpg") is None
    assert finder.is_foreign(f"{beginning}gone.jpg")
    assert len(finder.moved) == 1


@pytest.mark.parametrize(
    ("there", "names", "expected"),
    [
        # Addresses with a query and quoted letters.
        (
            ("a b.jpg", "2.jpg"),
            ("https://example.org/i/a%20b.jpg?size=5#x", "https://example.org/i/2.jpg"),
            ("a b.jpg", "2.jpg"),
        ),
        # A folder that is here is not taken for another.
        (("a/1.jpg", "b/2.jpg", "3.jpg"), ("a/2.jpg", "b/1.jpg", "../3.jpg"), (None, None, None)),
        # Two folders have the name.
        (("a/1.jpg", "b/1.jpg"), ("/home/x/1.jpg",), (None,)),
        # All images are in one folder below; a second folder leaves a doubt.
        (("in/1.jpg", "in/2.jpg"), ("1.jpg", "gone.jpg"), ("in/1.jpg", None)),
        (("in/1.jpg", "2.jpg"), ("1.jpg",), (None,)),
    ],
)
def test_where_images_are_by_all_names_at_once(
    tmp_path: Path, there: tuple[str, ...], names: tuple[str, ...], expected: tuple[str | None, ...]
) -> None:
    finder = finder_of(tmp_path / "photos", *there)
    finder.learn(names)
    assert tuple(map(finder.find, names)) == expected
    assert [finder.is_foreign(name) for name in names] == [":" in name or name[0] == "/" for name in names]
