"""Notes of similar cases, written into studies after a sync of them."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from app.archive_settings import ResultForm
    from app.pacs.dicomweb.archive import Archive
    from app.pacs.results.cases import ChosenCases
    from app.settings import Settings
    from index.engine import SearchEngine


def write_notes(
    engine: "SearchEngine",
    settings: "Settings",
    archive: "Archive",
    collection: str,
    studies: "Collection[str]",
    forms: "Sequence[ResultForm]",
) -> None:
    """Write a note into each study, with its event of the audit trail, and tell the outcome.

    Raises:
        ArchiveError: The archive does not answer, or does not store a note.
    """
    from app.audit.trail import record_command
    from app.pacs.dicomweb.pace import OutsideHoursError
    from app.pacs.results.note import write_note

    def record(cases: "ChosenCases", sops: "Sequence[str]") -> None:
        record_command(
            settings,
            engine.home.catalogue,
            "create",
            "pacs sync",
            collection=collection,
            objects=[cases.query.id, *(hit.id for hit in cases.hits), *sops],
            model=cases.active.digest,
            generation=cases.active.generation,
            cases=len(cases.hits),
            forms=",".join(forms),
        )

    for study in studies:
        try:
            typer.echo(write_note(engine, archive, collection, study, forms, record))
        except OutsideHoursError:
            typer.echo("The hours are over: no note is written.", err=True)
            return
