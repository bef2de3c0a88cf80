"""All studies of archives that page, cut or warn."""

from datetime import date

import pytest

from app.radiology import listing
from app.radiology.archive import ArchiveError
from app.radiology.listing import Selection, StudyList, list_instances
from tests.app.radiology.small_archive import SmallArchive, archive_of, serve
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
SAME_TIME = "The archive lists 12 studies of the same time and may have more"
ALL = {film.StudyInstanceUID for film in STUDIES}


def _listed(archive: SmallArchive, selection: Selection | None = None) -> set[str]:
    with serve(archive):
        return set(StudyList(archive_of(archive), selection or Selection()).all(TODAY))


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
        (["081500"] * 30, 12, [SAME_TIME]),
        (["235900", "235901.5"] * 15, 24, [SAME_TIME] * 2),
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
        studies = StudyList(archive_of(archive), Selection())
        assert len(studies.all(TODAY)) == count
    assert [doubt.partition(",")[0] for doubt in studies.doubts] == doubts


def test_only_the_dates_that_are_wanted_are_listed() -> None:
    requested = Selection(first=date(2024, 2, 14), last=date(2024, 2, 14))
    expected = {film.StudyInstanceUID for film in STUDIES if film.StudyDate == "20240214"}
    assert len(expected) == 55
    assert _listed(SmallArchive(STUDIES, cap=20, pages=False), requested) == expected


def test_a_known_number_of_studies_or_instances_ends_the_listing() -> None:
    archive = SmallArchive(STUDIES)
    with serve(archive):
        studies = StudyList(archive_of(archive), Selection()).all(TODAY, len(STUDIES))
    assert len(studies) == len(STUDIES)
    # Pages of 20 and the empty one behind them, and no halves.
    assert len(archive.requests) == -(-len(STUDIES) // 20) + 1
    archive = SmallArchive([make_film(0, study=1), make_film(1, study=1, view="LL")])
    with serve(archive):
        reader = archive_of(archive)
        (study,) = StudyList(reader, Selection()).all(TODAY).values()
        before = len(archive.requests)
        assert len(list_instances(reader, study, with_attributes=False)) == study.count == 2
    assert len(archive.requests) == before + 1
