"""The request of a search, without its query vector."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic_core import to_json

from index.catalogue.collections import Target
from index.catalogue.full_text import MAX_WORDS, parse_words, tokens
from index.errors import QueryError
from index.filters.grammar import Filter, HasFinding
from index.vectors.protocol import Vectors
from training.clinical.findings import State, find_findings, image_states

# Scores of texts and of images lie in different ranges.
QueryKind = Literal["text", "image"]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Filter, exclusions, order and size of a page of hits.

    Attributes:
        k: Hits on the page; fewer are returned only when fewer can be found.
        filter: Filter on the images.
        cursor: `next_cursor` of the page before.
        exclude: Images to leave out, by id.
        exclude_groups_of: Images, by id, that are left out with all others of their groups.
        exclude_groups_by: The field that makes these groups.
        exclude_patients_of: Images, by id, whose patients are left out where images are of studies.
        words: Words whose exact matches are fused with the ranking by vectors.
        words_state: Matches of words only where the texts say this of the findings that the words name.
        stated: What the query's text says of findings if it says that one is absent: images whose texts say
            all of it are a ranking of their own, fused with that by vectors.
        target: Whether images are searched or their texts; a filter is about the image either way.
        group_by: A field: one hit, the best, for all images that have the same value in it.
        min_score: Lowest cosine of a hit; None: any.
        diversity: Weight of differences between hits, from 0 to 1; None ranks by similarity alone.
        kind: Kind of the query vector; None for a composed or unknown one.
        parts: Parts of a composed query vector as text: the vector itself varies with the collection.
    """

    k: int = 10
    filter: Filter | None = None
    cursor: str | None = None
    exclude: tuple[str, ...] = ()
    exclude_groups_of: tuple[str, ...] = ()
    exclude_groups_by: str = "group"
    exclude_patients_of: tuple[str, ...] = ()
    words: str | None = None
    words_state: State | None = None
    stated: tuple[HasFinding, ...] = ()
    target: Target = "images"
    group_by: str | None = None
    min_score: float | None = None
    diversity: float | None = None
    kind: QueryKind | None = None
    parts: str | None = None

    @property
    def words_findings(self) -> tuple[HasFinding, ...]:
        """The findings that the words name, in the state that is asked for."""
        if self.words is None or self.words_state is None:
            return ()
        names = image_states(find_findings(self.words))
        return tuple(HasFinding(finding=name, state=self.words_state) for name in names)

    @property
    def is_remade(self) -> bool:
        """Whether the order depends on all hits before a place, and is made again for every page."""
        return self.words is not None or self.group_by is not None or self.diversity is not None

    def check(self) -> None:
        """Refuse what cannot be searched for.

        Raises:
            QueryError: A value is out of its range, or two of them exclude each other.
        """
        if self.k < 1:
            raise QueryError("limit, the number of hits, must be at least 1.", field="limit")
        if self.diversity is not None and not 0 <= self.diversity <= 1:
            raise QueryError("diversity must lie between 0 and 1.", field="diversity")
        if self.min_score is not None and not -1 <= self.min_score <= 1:
            raise QueryError("min_score, a cosine, must lie between -1 and 1.", field="min_score")
        if self.words is not None:
            _check_words(self.words)
        if self.words_state is not None and not self.words_findings:
            raise QueryError(
                "keywords_state goes with `keywords` that name a finding, such as effusion: "
                "name one, or leave it out.",
                field="keywords_state",
            )

    def bound(self) -> str:
        """Return everything that must be the same for all pages of one search, as a text."""
        values = {
            "filter": None if self.filter is None else self.filter.text,
            "exclude": sorted(self.exclude),
            "exclude_groups_of": sorted(self.exclude_groups_of),
            "exclude_groups_by": self.exclude_groups_by,
            "words": None if self.words is None else tokens(self.words),
            "words_state": self.words_state,
            "stated": [finding.value for finding in self.stated],
            "target": self.target,
            "group_by": self.group_by,
            "min_score": None if self.min_score is None else float(self.min_score),
            "diversity": None if self.diversity is None else float(self.diversity),
            "kind": self.kind,
            "parts": self.parts,
        }
        if self.exclude_patients_of:
            # Cursors of requests without it stay as they were.
            values["exclude_patients_of"] = sorted(self.exclude_patients_of)
        return to_json(values).decode()


class BatchEntry(NamedTuple):
    """A search of a batch: its query vector (D,), the rest, and its text as in `SearchEngine.search`."""

    vector: Vectors
    request: SearchRequest
    text: str | None


def stated_findings(text: str) -> tuple[HasFinding, ...]:
    """Return what a query's text says of findings; nothing unless it says that one is absent."""
    states = image_states(find_findings(text))
    if "absent" not in states.values():
        return ()
    return tuple(HasFinding(finding=name, state=state) for name, state in sorted(states.items()))


def _check_words(words: str) -> None:
    different = parse_words(words).size
    if not different:
        raise QueryError("There is no word in `keywords`: give some, or leave it out.", field="keywords")
    if different > MAX_WORDS:
        raise QueryError(
            f"There are {different:,} different words in `keywords`: give at most {MAX_WORDS}.",
            field="keywords",
        )
