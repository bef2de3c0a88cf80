"""Studies of patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recoquest_client import answers, operations
from recoquest_client.async_client.connection import AsyncConnection


class AsyncStudies(AsyncConnection):
    """Studies of patients."""

    async def similar_studies(
        self,
        study: str,
        *,
        collection: str | None = None,
        sop: str | None = None,
        frame: int | None = None,
        filter: Mapping[str, Any] | None = None,
        same_patient: bool = False,
        limit: int = 10,
    ) -> answers.SimilarStudies:
        """Find studies like a study, or like one image of it, most similar first.

        Args:
            study: Its Study Instance UID.
            collection: Name of the collection; None: the first one, by name, that holds the study.
            sop: SOP Instance UID of an image; None: the whole study.
            frame: Number of a frame of that image, from 1.
            filter: Filter on the images of hits.
            same_patient: Whether to include other studies of the same patient.
            limit: Number of studies.
        """
        return await self._send(
            operations.find_similar(study, collection, sop, frame, filter, same_patient, limit)
        )

    async def index_study(self, collection: str, study: str, *, note: bool = False) -> answers.Job:
        """Begin a job that takes a study over from the archive that RECOQUEST_PACS_SYNC of the service names.

        Args:
            collection: Name of the collection that this sync is about.
            study: Study Instance UID.
            note: Whether its most similar cases of other patients are then written into the study.
        """
        return await self._send(operations.index_study(collection, study, note))

    async def write_results(
        self,
        collection: str,
        study: str,
        sop: str,
        hits: Sequence[str],
        *,
        frame: int | None = None,
        forms: Sequence[str] | None = None,
    ) -> answers.WrittenResults:
        """Write similar cases of an image back to its study of the archive, as the service's settings allow.

        Args:
            collection: Name of the collection.
            study: Study Instance UID of the image.
            sop: Its SOP Instance UID.
            hits: Ids of up to 6 hits of `similar_studies`.
            frame: Number of its frame, from 1; None: it has one.
            forms: `capture`, `report`, `selection`; None: all that are allowed.
        """
        return await self._send(operations.write_results(collection, study, sop, hits, frame, forms))
