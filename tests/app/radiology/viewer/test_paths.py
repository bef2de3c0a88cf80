"""Paths that are passed on to an archive."""

import pytest

from app.radiology.archive_proxy import ArchivePath, parse_path


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        ("studies", None),
        ("series", None),
        ("instances", None),
        ("studies/1.2.3/series", "1.2.3"),
        ("studies/1.2.3/instances", "1.2.3"),
        ("studies/1.2.3/series/4.5/instances", "4.5"),
    ],
)
def test_queries(path: str, uid: str | None) -> None:
    assert parse_path(path) == ArchivePath(path, uid, is_query=True)


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        ("studies/1.2", "1.2"),
        ("studies/1.2/metadata", "1.2"),
        ("studies/1.2/thumbnail", "1.2"),
        ("studies/1.2/series/3.4/rendered", "3.4"),
        ("studies/1.2/series/3.4/instances/5", "5"),
        ("studies/1.2/series/3.4/instances/5/frames/1", "5"),
        ("studies/1.2/series/3.4/instances/5/frames/1,2,30/rendered", "5"),
        ("studies/1.2/series/3.4/instances/5/bulk/00420011", "5"),
        ("studies/1.2/bulkdata/a/b-c/7", "1.2"),
    ],
)
def test_retrievals(path: str, uid: str) -> None:
    assert parse_path(path) == ArchivePath(path, uid, is_query=False)


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "studies/", "studies//series", "patients", "studies/1.2/..", "studies/../instances",
        "studies/1.2/series/.",
        "studies/1.2/bulkdata/../../instances", "studies/1.2/bulkdata/", "studies/a.b", "studies/1..2",
        "studies/1.2?x=1",
        "studies/1.2#x", "studies/1.2\n", "studies/1.2/series/3/instances/4/frames/", "studies/1.2/frames/1",
        "studies/1.2/series/3/instances/4/frames/1,", "studies/" + "1" * 65,
        "studies/1.2/bulkdata" + "/a" * 33,
        "studies/1.2/series/3/instances/4/frames/" + ",".join("1" * 600), "../system",
        "%2e%2e/system", "studies/\uff11.2",
    ],
)  # fmt: skip
def test_all_else_is_no_path(path: str) -> None:
    assert parse_path(path) is None
