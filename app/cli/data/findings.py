"""`recoquest findings`: the findings that a report states."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from app.cli.options import read_text
from app.edge.console import console
from training.clinical.findings import (
    CHEXPERT_LABELS,
    FINDINGS,
    Finding,
    are_prior,
    chexpert_labels,
    find_findings,
    is_read,
    unread_words,
)


def findings(
    text: Annotated[
        str | None, typer.Argument(help="Sentence or report; without one, the list of all findings.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="File of a report in UTF-8.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of JSON, with offsets.")] = False,
    labels: Annotated[
        bool, typer.Option("--labels", help="Print the fourteen labels of CheXpert with their states.")
    ] = False,
) -> None:
    """Print what a report says of findings: present, absent or uncertain."""
    if text is not None and file is not None:
        raise typer.BadParameter("give a text or a file, not both.", param_hint="--file")
    if file is not None:
        text = read_text(file)
    if labels:
        _print_labels(text, as_json=as_json)
        return
    if text is None:
        typer.echo(json.dumps(FINDINGS) if as_json else "\n".join(FINDINGS))
        return
    found = find_findings(text)
    if as_json:
        rows = [
            {"finding": name, "state": state, "start": start, "end": end, "prior": prior}
            for (name, state, start, end), prior in zip(found, _priors(text, found), strict=True)
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False))
    elif not is_read(text):
        typer.echo("The text seems to be neither English nor German: its findings are not read.")
    elif not found:
        typer.echo("No finding of the vocabulary is stated; `recoquest findings` lists it.")
    else:
        console().print(_table(text, found))
    if not as_json:
        _print_unread(text)


def _print_unread(text: str) -> None:
    """Name the words that no rule knows: such a text gets no label "No Finding"."""
    if is_read(text) and (words := unread_words(text)):
        typer.echo(f"Not understood: {', '.join(words)}.")


def _print_labels(text: str | None, *, as_json: bool) -> None:
    """Print the labels of a text; of none, all of them."""
    if text is None:
        typer.echo(json.dumps(CHEXPERT_LABELS) if as_json else "\n".join(CHEXPERT_LABELS))
        return
    states = chexpert_labels(text)
    if as_json:
        typer.echo(json.dumps(states))
    elif not states:
        typer.echo(
            "The text states nothing that is understood, or is neither English nor German: it has no labels."
        )
    else:
        table = Table("Label", "State")
        for label in CHEXPERT_LABELS:
            table.add_row(label, states.get(label, ""))
        console().print(table)
    if not as_json:
        _print_unread(text)


def _table(text: str, found: tuple[Finding, ...]) -> Table:
    table = Table("Finding", "State", "Words", "Characters", "Compared")
    for (name, state, start, end), prior in zip(found, _priors(text, found), strict=True):
        # Words of a report may look like markup.
        words = Text(" ".join(text[start:end].split()))
        table.add_row(name, state, words, f"{start} to {end}", "yes" if prior else "")
    return table


def _priors(text: str, found: tuple[Finding, ...]) -> list[bool]:
    """Tell which findings stand in sentences that compare with an earlier examination, or tell of one."""
    return are_prior(text, [finding.start for finding in found])
