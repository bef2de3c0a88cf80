"""An import of a table beside a folder of photographs."""

from pathlib import Path

from training.common.manifest import read_manifest
from training.common.record import Record
from training.importing.report import ImportReport
from training.importing.run import import_data_set


def import_table(
    folder: Path, text: str | bytes, *, encoding: str | None = None, keep_unknown_texts: bool = False
) -> tuple[ImportReport, list[Record]]:
    """Import with any number of refused rows."""
    table = folder.parent / "t.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    report = import_data_set(
        "folder",
        folder,
        table=table,
        encoding=encoding,
        keep_unknown_texts=keep_unknown_texts,
        max_rejected=1.0,
    )
    assert all(tally.unaccounted == 0 for tally in report.tallies)
    records = list(read_manifest(folder).records)
    assert "\ufffd" not in repr(records)
    return report, records


def texts_of(records: list[Record]) -> dict[str, tuple[str, ...]]:
    return {record.image: record.texts for record in records}
