"""Hits of `recoquest search` as a table."""

from typing import TYPE_CHECKING

import typer

from app.edge.observability.console import console
from index.scoring import MIN_IMAGES, MIN_KINDS, Confidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.search.schemas.page import SearchResponse
    from app.search.schemas.query import SearchQuery


def print_table(page: "SearchResponse", query: "SearchQuery") -> None:
    """Print the hits of a page, or one sentence about why there is none."""
    from rich.table import Table

    screen = console()
    for cut in page.query.truncations:
        typer.echo(f"The text was cut to {cut.kept} of {cut.tokens} tokens: {cut.searched_text!r}", err=True)
    if page.unknown_keywords:
        typer.echo(f"No text has {_listed(page.unknown_keywords)}.", err=True)
    if not page.hits:
        screen.print(_why_nothing(query, page))
        return
    if page.confident is False:
        typer.echo(
            "Likely nothing here is what was asked for: no test on held-out images shows that hits with such "
            "scores are better than chance.",
            err=True,
        )
    first = page.hits[0]
    ranked, fused = first["cosine"] is not None, first["score_kind"] == "fused"
    grouped = first["group_size"] is not None
    kinds = [str(first["cosine_kind"]).replace("_", " ").capitalize(), "Z-score"] if ranked else []
    extra = [*kinds, *(["Found by"] if fused else []), *(["In group"] if grouped else [])]
    table = Table("Rank", "Id", *extra, "Text")
    for hit in page.hits:
        text = hit["text"] or hit["matched"]
        table.add_row(
            str(hit["rank"]),
            hit["id"],
            *([] if hit["cosine"] is None else [f"{hit['cosine']:.4f}", _z_score(hit["z_score"])]),
            *([" and ".join(hit["found_by"])] if fused else []),
            *([str(hit["group_size"])] if grouped else []),
            next(iter(hit["texts"]), "") if text is None else text["text"],
        )
    screen.print(table)
    if page.count is not None:
        last = page.hits[-1]["rank"]
        typer.echo(f"{first['rank']:,} to {last:,} of {page.count:,}", err=True)


def print_confidence(measured: "Confidence | None") -> None:
    """Say from which score on a text query is confident, and how often that is right."""
    if measured is None:
        typer.echo("confident: not measured yet; `recoquest index` and the service measure it.")
        return
    pairs = f"{measured.held_out:,} held-out images with texts, of {measured.kinds:,} kinds"
    counts = measured.counts
    if counts is None:
        typer.echo(f"confident: unknown from {pairs}; it takes {MIN_IMAGES} images of {MIN_KINDS} kinds.")
        return
    known, unknown = (
        "never" if one is None else f"from {one:.3f}" for one in (measured.known, measured.unknown)
    )
    typer.echo(
        f"confident, by the best score: {known}; {unknown} with words that the collection lacks. Measured on "
        f"{pairs}.\n"
        f"Held-out queries, by the thresholds of others: true for {counts.true:,}, of which "
        f"{counts.true_right:,} had more right hits among 10 than chance; false for {counts.false:,}, of "
        f"which {counts.false_right:,} had no more. Phrases that nothing answers: false for "
        f"{counts.unanswerable_right:,} of {counts.unanswerable:,}."
    )


def _listed(words: "Sequence[str]") -> str:
    """Return "the word 'a'", or "the words 'a', 'b' and 'c'"."""
    *others, last = map(repr, words)
    return f"the words {', '.join(others)} and {last}" if others else f"the word {last}"


def _z_score(deviations: float | None) -> str:
    return "" if deviations is None else f"{deviations:+.1f}"


def _why_nothing(query: "SearchQuery", page: "SearchResponse") -> str:
    if query.keywords is not None and page.count is not None:
        return f"No image {'that passes the filter ' if query.filter else ''}has any of the words."
    if query.filter is not None:
        return "Nothing else passes the filter." if query.stored else "Nothing passes the filter."
    return "Nothing is left beside what was left out." if query.stored else "The collection is empty."
