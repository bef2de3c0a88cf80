"""A note that a job writes into a study of the archive: its most similar studies of other patients."""

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from PIL import Image

from app.archive_settings import ArchiveSettings, ResultForm
from app.radiology.pacs.dicomweb.archive import Archive, ArchiveError
from app.radiology.pacs.dicomweb.listing import items, text
from app.radiology.pacs.dicomweb.storing import store_instances
from app.radiology.pacs.results import capture, report
from app.radiology.pacs.results.cases import ChosenCases, most_similar_cases
from app.radiology.pacs.results.objects import Uids, encode, read_source
from app.radiology.pacs.results.write_back import make_objects
from app.radiology.schemas.studies import whole_number_of
from index.engine import SearchEngine
from index.files.renditions import Rendition, make_rendition
from index.studies import FRAME, SOP

NOTES_OFF: Final = (
    "No note is written: RECOQUEST_PACS_WRITE_BACK of the service names the forms that may be written to the "
    "archive, such as capture,report."
)
# Modalities of the forms that are stored, by which the UIDs of their objects are named.
_STORED: Final[Mapping[ResultForm, str]] = {"capture": capture.MODALITY, "report": report.MODALITY}
_SOP_UID: Final = "00080018"


# Takes the cases of a note and the SOP Instance UIDs of its objects.
RecordNote = Callable[[ChosenCases, Sequence[str]], None]


def note_forms(settings: ArchiveSettings) -> list[ResultForm]:
    """Return the forms of a note that the settings allow; none: no note is written."""
    return [form for form in settings.pacs_write_back if form in _STORED]


def write_note(
    engine: SearchEngine,
    archive: Archive,
    collection: str,
    study: str,
    forms: Sequence[ResultForm],
    record: RecordNote,
) -> str:
    """Write a note into a study, in series of its own, and return the outcome in words.

    Its UIDs follow from the images of the study and the model: indexed again, a study has the same note once.
    Other studies that come later write no other one.

    Args:
        engine: Engine of the home.
        archive: The archive.
        collection: Name of the collection.
        study: Study Instance UID.
        forms: Forms of the note.
        record: Called before the note is sent, as the archive may store what it fails to answer.

    Raises:
        ArchiveError: The archive does not answer, or does not store the note.
        OutsideHoursError: The archive may not be asked now.
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection cannot be searched yet.
    """
    found = most_similar_cases(engine, collection, study)
    if found is None:
        return (
            "No note: the study has no film that can be compared, or no other patient is known to have one."
        )
    cases, images = found
    uids = Uids("\n".join(("note", study, cases.active.digest, *sorted(images))))
    missing = [form for form in forms if not _is_there(archive, study, uids, _STORED[form])]
    if not missing:
        return "The study has its note already."
    known = cases.query.metadata
    source = read_source(archive, study, cases.series, str(known[SOP]), whole_number_of(known, FRAME))
    pictures = _pictures(engine, cases) if "capture" in missing else []
    made = make_objects(cases, missing, source, pictures, uids, datetime.now(UTC).astimezone())
    files = {str(one.SOPInstanceUID): encode(one) for one in made.values()}
    record(cases, list(files))
    refused = store_instances(archive, study, files)
    if refused:
        raise ArchiveError(f"The archive refuses the note ({'; '.join(refused.values())}).")
    return f"Note written: {len(cases.hits):,} of the most similar studies of other patients."


def _is_there(archive: Archive, study: str, uids: Uids, modality: str) -> bool:
    """Tell whether the archive has an object of the note."""
    series, sop = uids.of(f"{modality} series"), uids.of(modality)
    try:
        answer = archive.get_json(f"studies/{study}/series/{series}/instances/{sop}/metadata")
    except ArchiveError as error:
        if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            return False
        raise
    return any(text(item, _SOP_UID) == sop for item in items(answer.value))


def _pictures(engine: SearchEngine, cases: ChosenCases) -> list[Image.Image]:
    pictures: list[Image.Image] = []
    for place, name in enumerate([cases.query.id, *(hit.id for hit in cases.hits)]):
        path = engine.image_path(cases.active.collection, name)
        side = capture.SMALL if place else capture.LARGE
        content = make_rendition(path, Rendition("image/png", 2 * side))
        pictures.append(Image.open(io.BytesIO(content)))
    return pictures
