"""All routes of studies, the archive and the viewer."""

from typing import Final

from fastapi import APIRouter

from app.radiology.routes import dicomweb, indexing, results, stow, studies, viewer
from app.radiology.viewer.archive import archive_of as archive_of

ROUTERS: Final[tuple[APIRouter, ...]] = tuple(
    module.router for module in (studies, results, indexing, dicomweb, stow, viewer)
)
