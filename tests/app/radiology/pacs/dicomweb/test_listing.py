"""All studies of archives that page, cut or warn; the parts of their answers; the pace of requests."""

from datetime import date, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.radiology import listing
from app.radiology.archive import (
    Archive,
    ArchiveError,
    Hours,
    MultipartError,
    OutsideHoursError,
    Pace,
    boundary_of,
    read_parts,
)
from app.radiology.listing import Selection, StudyList, list_instances
from tests.app.radiology.pacs.small_archive import SmallArchive, serve
from tests.dicom_films import make_film

TODAY = date(2026, 11, 27)
# Years, a busy day, and one busy minute of it.
STUDIES = [
    *(make_film(n, StudyDate=f"{1990 + n % 30}{1 + n % 12:02}15") for n in range(60)),
    *(make_film(n, StudyDate="20240214", StudyTime=f"{n % 24:02}{n % 60:02}00") for n in range(100, 150)),
    *(make_film(n, StudyDate="20240214", StudyTime=f"0815{n % 60:02}.5") for n in range(200, 205)),
    make_film(300, StudyDate="20991231"),
    make_film(301, StudyDate="18940101"),
]
ALL = {film.StudyInstanceUID for film in STUDIES}


def _listed(archive: SmallArchive, selection: Selection | None = None) -> set[str]:
    with serve(archive):
        found = StudyList(Archive(archive.url, pauses=()), selection or Selection()).all(TODAY)
    return set(found)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE", 20)


@pytest.mark.parametrize("pages", [True, False], ids=["offsets", "no offsets"])
@pytest.mark.parametrize("warns", [True, False], ids=["warns", "silent"])
@pytest.mark.parametrize("cap", [None, 7, 20, 50])
def test_every_study_is_listed_whatever_the_limit(cap: int | None, pages: bool, warns: bool) -> None:
    """An archive that refuses offsets is split as one that passes over them."""
    archive = SmallArchive(STUDIES, cap=cap, pages=pages, warns=warns)
    answer = archive.answer

    def refuse(target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if "offset=0" not in target:
            return 400, {}, b""
        return answer(target, headers)  # type: ignore[return-value]

    assert _listed(archive) == ALL
    archive.answer = refuse  # type: ignore[assignment, method-assign]
    assert _listed(archive) == ALL


def test_a_minute_that_is_cut_is_an_error() -> None:
    crowd = [make_film(n, StudyDate="20240214", StudyTime="081500") for n in range(12)]
    with pytest.raises(ArchiveError, match="of the same time and has more"):
        _listed(SmallArchive(crowd, cap=10, pages=False, warns=True))


@pytest.mark.parametrize(
    ("times", "count", "doubts"),
    [
        (["081500"] * 30, 12, ["The archive lists 12 studies of the same time and may have more"]),
        (
            ["235900", "235901.5"] * 15,
            24,
            ["The archive lists 12 studies of the same time and may have more"] * 2,
        ),
        ([None] * 30, 12, ["The archive lists 12 studies of a day without a time and may have more"]),
        ([f"0815{n:02}" for n in range(30)], 30, []),
    ],
)
def test_studies_that_may_be_cut_in_silence_are_told(
    times: list[str | None], count: int, doubts: list[str]
) -> None:
    crowd = [make_film(n, StudyDate="20240214", StudyTime=time) for n, time in enumerate(times)]
    archive = SmallArchive(crowd, cap=12, pages=False)
    with serve(archive):
        studies = StudyList(Archive(archive.url, pauses=()), Selection())
        assert len(studies.all(TODAY)) == count
    assert [doubt.partition(",")[0] for doubt in studies.doubts] == doubts


def test_only_the_dates_that_are_wanted_are_listed() -> None:
    wanted = Selection(first=date(2024, 2, 14), last=date(2024, 2, 14))
    expected = {film.StudyInstanceUID for film in STUDIES if film.StudyDate == "20240214"}
    assert len(expected) == 55
    assert _listed(SmallArchive(STUDIES, cap=20, pages=False), wanted) == expected


def test_a_known_number_of_studies_or_instances_ends_the_listing() -> None:
    archive = SmallArchive(STUDIES)
    with serve(archive):
        studies = StudyList(Archive(archive.url, pauses=()), Selection()).all(TODAY, len(STUDIES))
    assert len(studies) == len(STUDIES)
    # Pages of 20 and the empty one behind them, and no halves.
    assert len(archive.requests) == -(-len(STUDIES) // 20) + 1
    archive = SmallArchive([make_film(0, study=1), make_film(1, study=1, view="LL")])
    with serve(archive):
        reader = Archive(archive.url, pauses=())
        (study,) = StudyList(reader, Selection()).all(TODAY).values()
        before = len(archive.requests)
        assert len(list_instances(reader, study, with_attributes=False)) == study.count == 2
    assert len(archive.requests) == before + 1


_BOUNDARY = b"frontier"


def _body(parts: list[bytes]) -> bytes:
    head = b"\r\n--frontier\r\nContent-Type: Application/DICOM; transfer-syntax=1.2\r\nX: y\r\n\r\n"
    return b"".join(head + part for part in parts) + b"\r\n--frontier--"


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=4).filter(
        lambda parts: not any(b"\r\n--frontier" in part + b"\r\n--fron" for part in parts)
    )
)
def test_parts_are_as_they_were_sent(parts: list[bytes]) -> None:
    found = read_parts(_body(parts), _BOUNDARY, 100, 9)
    assert [part.content for part in found] == parts
    assert {part.media_type for part in found} == {"application/dicom"}


@pytest.mark.parametrize(
    ("body", "limits", "parts"),
    [
        # One that is too large is passed over, and the next is read.
        (_body([bytes(11), b"small", bytes(10)]), (10, 9), [None, b"small", bytes(10)]),
        # Reading ends at the first part too many.
        (_body([b"part"] * 5)[:-20], (10, 2), [b"part"] * 3),
        (b"This is a message in parts.\r\n\r\n--frontier\r\n\r\none\r\n--frontier--", (100, 9), [b"one"]),
        (b"--frontiers, and\r\n--frontier \t\r\n\r\none\r\n--frontier-- \r\nend", (100, 9), [b"one"]),
        (
            b"--frontier\r\nX: a\r\n b\r\n\r\n--frontier\r\n\r\n\r\n\r\n--frontier--\r\n",
            *((100, 9), [b"", b"\r\n"]),
        ),
        (
            b"--frontier\r\n\r\none\r\n--frontierland\r\n--fron\r\n--frontier--",
            *((100, 9), [b"one\r\n--frontierland\r\n--fron"]),
        ),
    ],
)  # fmt: skip
def test_bodies_are_read_as_the_standard_writes_them(
    body: bytes, limits: tuple[int, int], parts: list[bytes | None]
) -> None:
    assert [part.content for part in read_parts(body, _BOUNDARY, *limits)] == parts


@pytest.mark.parametrize(
    ("body", "said"),
    [
        *((_body([b"one", b"two"])[:-left], "before its last boundary") for left in (1, 2, 8, 40)),
        (b"no boundary at all", "."),
        (b"--frontier\r\nno header\r\n\r\n", "."),
        (b"--frontier\r\nno header\r\n\r\n\r\n--frontier--", "."),
        (b"--frontier\r\nX: " + bytes(9000) + b"\r\n\r\n\r\n--frontier--", "."),
    ],
)
def test_a_body_that_is_cut_or_of_another_form_is_an_error(body: bytes, said: str) -> None:
    with pytest.raises(MultipartError, match=said):
        read_parts(body, _BOUNDARY, 100, 9)


def test_boundaries_are_found_and_other_kinds_have_none() -> None:
    assert boundary_of('multipart/related; type="application/dicom"; boundary=a-b') == b"a-b"
    assert boundary_of('Multipart/Related; boundary="a b"') == b"a b"
    for header in ("", "application/dicom", "multipart/form-data; boundary=a", "multipart/related"):
        with pytest.raises(MultipartError):
            boundary_of(header)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("20-06", (20, 23, 0, 5), (6, 12, 19)),
        ("8-17", (8, 16), (7, 17, 0)),
        ("22-24", (22, 23), (0, 21)),
        *((text, None, ()) for text in ("", "20", "0-24", "20-25", "6-6", "20:00-06:00", "a-b")),
    ],
)
def test_hours_are_read_across_midnight(
    text: str, inside: tuple[int, ...] | None, outside: tuple[int, ...]
) -> None:
    if inside is None:
        with pytest.raises(ValueError, match="not two different hours"):
            Hours.parse(text)
        return
    hours = Hours.parse(text)
    assert all(map(hours.include, inside))
    assert not any(map(hours.include, outside))


def test_outside_its_hours_a_request_waits_or_is_refused() -> None:
    at = [datetime(2026, 1, 1, 17, 59, 30)]
    pace = partial(
        Pace, hours=Hours.parse("18-06"), now=lambda: at[-1],
        sleep=lambda seconds: at.append(at[-1] + timedelta(seconds=seconds)),
    )  # fmt: skip
    with pytest.raises(OutsideHoursError):
        pace().wait()
    pace(waits=True).wait()
    assert at[-1] == datetime(2026, 1, 1, 18)


def test_requests_are_spread_by_their_rate() -> None:
    slept: list[float] = []
    pace = Pace(100.0, sleep=slept.append)
    for _ in range(5):
        pace.wait()
    # The clock hardly goes on meanwhile: each waits for its own place.
    assert sum(slept) == pytest.approx(0.01 + 0.02 + 0.03 + 0.04, abs=0.01)
