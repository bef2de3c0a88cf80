"""Similar cases as a secondary capture, which every archive and every viewer shows."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from pydicom import Dataset
from pydicom.uid import SecondaryCaptureImageStorage

from app.radiology.result_objects import MAX_CASES, NOTICE, WHOSE, SourceFilm, begin_object
from app.radiology.studies import SimilarHit

CAPTURE_MODALITY: Final = "OT"
WIDTH: Final = 1600
HEIGHT: Final = 1200
# Longest sides of the film that was searched with and of similar ones, in pixels.
LARGE: Final = 560
SMALL: Final = 300
_COLUMNS: Final = 3
_MARGIN: Final = 24
_HEAD: Final = 96
_GAP: Final = 22
_TEXT: Final = 20
_LINE: Final = 27
_SENTENCE_LINES: Final = 4
# More letters than fit on a line, however narrow they are.
_LONGEST_LINE: Final = 100
_CELL: Final = (HEIGHT - _HEAD - _MARGIN) // 2
_INK: Final = "#e8e8e8"
_SOFT: Final = "#b0b0b0"
_PAPER: Final = "black"
_RULE: Final = "#505050"
_RIGHT_TO_LEFT: Final = ("R", "AL", "AN")
NO_LETTERS: Final = "(Its sentence has letters that this page cannot show.)"


@dataclass(frozen=True, slots=True)
class SheetFilm:
    """A film on the page, with a sentence of its report."""

    picture: Image.Image
    title: str
    facts: Sequence[str]
    sentence: str = ""


class _Letters:
    """Two weights of a font, and what it can write."""

    def __init__(self) -> None:
        # Fonts of Pillow itself lack all letters but those of English.
        from matplotlib import get_data_path
        from matplotlib.ft2font import FT2Font

        folder = Path(get_data_path()) / "fonts" / "ttf"
        regular, bold = folder / "DejaVuSans.ttf", folder / "DejaVuSans-Bold.ttf"
        self.regular = ImageFont.truetype(regular, _TEXT)
        self.bold = ImageFont.truetype(bold, _TEXT)
        self.large = ImageFont.truetype(bold, _TEXT + 8)
        self._letters = frozenset(FT2Font(str(regular)).get_charmap())

    def can_write(self, text: str) -> bool:
        """Return whether the font has all letters, in the direction in which they are drawn."""
        return all(
            ord(letter) in self._letters and unicodedata.bidirectional(letter) not in _RIGHT_TO_LEFT
            for letter in text
        )

    def lines(self, text: str, width: int, most: int) -> list[str]:
        """Break a text into lines; the last one of a longer text ends in dots."""
        lines_found = list(self._broken(text[: most * _LONGEST_LINE].split(), width))
        if len(lines_found) <= most:
            return lines_found
        last = lines_found[most - 1]
        while last and self.regular.getlength(f"{last}…") > width:
            last = last[:-1]
        return [*lines_found[: most - 1], f"{last.rstrip()}…"]

    def _broken(self, words: Sequence[str], width: int) -> Iterator[str]:
        line = ""
        for word in words:
            longer = f"{line} {word}" if line else word
            if line and self.regular.getlength(longer) > width:
                yield line
                longer = word
            while self.regular.getlength(longer) > width:
                fitting = len(longer) - 1
                while self.regular.getlength(longer[:fitting]) > width:
                    fitting -= 1
                yield longer[:fitting]
                longer = longer[fitting:]
            line = longer
        if line:
            yield line


def draw_sheet(notice: str, about: str, query: SheetFilm, cases: Sequence[SheetFilm]) -> Image.Image:
    """Draw the page, in grey levels where no film has colours."""
    letters = _Letters()
    is_grey = all(film.picture.mode in ("L", "1") for film in (query, *cases))
    page = Image.new("L" if is_grey else "RGB", (WIDTH, HEIGHT), _PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((_MARGIN, 16), notice, _INK, letters.large)
    draw.text((_MARGIN, 56), about, _SOFT, letters.regular)
    draw.line((_MARGIN, _HEAD - 8, WIDTH - _MARGIN, _HEAD - 8), _RULE)
    _draw_film(page, letters, query, (_MARGIN, _HEAD), LARGE)
    for index, case in enumerate(cases[:MAX_CASES]):
        row, column = divmod(index, _COLUMNS)
        left = _MARGIN + LARGE + 2 * _GAP + column * (SMALL + _GAP)
        _draw_film(page, letters, case, (left, _HEAD + row * _CELL), SMALL)
    return page


def _draw_film(
    page: Image.Image, letters: _Letters, film: SheetFilm, corner: tuple[int, int], side: int
) -> None:
    draw = ImageDraw.Draw(page)
    left, top = corner
    draw.text((left, top), film.title, _INK, letters.bold)
    picture = ImageOps.contain(film.picture.convert(page.mode), (side, side), Image.Resampling.LANCZOS)
    corner_of_picture = left + (side - picture.width) // 2, top + _LINE + 6 + (side - picture.height) // 2
    page.paste(picture, corner_of_picture)
    sentence = film.sentence if letters.can_write(film.sentence) else NO_LETTERS
    facts = filter(letters.can_write, film.facts)
    lines = [(line, _INK) for fact in facts for line in letters.lines(fact, side, 2)]
    lines += [(line, _SOFT) for line in letters.lines(sentence, side, _SENTENCE_LINES)]
    for number, (line, ink) in enumerate(lines):
        draw.text((left, top + _LINE + side + 14 + number * _LINE), line, ink, letters.regular)


def make_capture(source: SourceFilm, pictures: Sequence[Image.Image]) -> Dataset:
    """Draw similar cases next to a film, on a page without names.

    `pictures`: the film, and each case.
    """
    cases = source.cases
    facts = [cases.query.metadata.get(name) for name in ("modality", "view", "laterality", "body_part")]
    first, *others = pictures
    sheet = draw_sheet(
        NOTICE,
        f"recoquest {version('recoquest')}, model {cases.active.model}, {cases.at:%Y-%m-%d %H:%M}. Scores "
        "are cosines, no probabilities.",
        SheetFilm(first, "This film", [_joined(facts)]),
        [_film(number, *case) for number, case in enumerate(zip(cases.hits, others, strict=True), 1)],
    )
    made = begin_object(source, SecondaryCaptureImageStorage, CAPTURE_MODALITY)
    made.ConversionType = "WSD"
    made.ImageType = ["DERIVED", "SECONDARY"]
    made.BurnedInAnnotation = "YES"
    made.DerivationDescription = NOTICE
    made.SourceImageSequence = [source.reference()]
    made.PatientOrientation = made.Laterality = None
    made.DateOfSecondaryCapture, made.TimeOfSecondaryCapture = made.ContentDate, made.ContentTime
    kind = "MONOCHROME2" if sheet.mode == "L" else "RGB"
    made.set_pixel_data(np.asarray(sheet), kind, 8, generate_instance_uid=False)
    return made


def _film(number: int, hit: SimilarHit, picture: Image.Image) -> SheetFilm:
    whose = WHOSE[hit.same_patient]
    score = f"Score {hit.score:.3f}".replace("-", "−")
    return SheetFilm(
        picture,
        f"{number}. {whose}",
        [
            _joined([hit.modality, hit.view, hit.laterality, hit.age_band, hit.sex]),
            f"{score}{_distance(hit)}",
        ],
        "" if hit.sentence is None else f"“{hit.sentence.text}”",
    )


def _distance(hit: SimilarHit) -> str:
    # Shifted dates compare within a patient alone, and a day of another one may name who that is.
    if hit.same_patient is not True or hit.days is None:
        return ""
    if hit.days == 0:
        return ", the same day"
    unit, side = "day" if abs(hit.days) == 1 else "days", "before" if hit.days < 0 else "after"
    return f", {abs(hit.days):,} {unit} {side}"


def _joined(facts: Sequence[object]) -> str:
    return " · ".join(str(fact) for fact in facts if fact is not None)
