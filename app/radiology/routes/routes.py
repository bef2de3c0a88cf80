"""All routes of studies, the archive and the viewer."""

from typing import Final

from fastapi import APIRouter

from app.radiology.routes import dicomweb, indexing, results, stow, studies, viewer

ROUTERS: Final[tuple[APIRouter, ...]] = tuple(
    module.router for module in (studies, results, indexing, dicomweb, stow, viewer)
)
