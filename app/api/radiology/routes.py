"""All routes of studies, the archive and the viewer."""

from fastapi import APIRouter

from app.api.radiology import dicomweb, indexing, stow, studies, viewer

router = APIRouter()
for module in (studies, indexing, dicomweb, stow, viewer):
    router.include_router(module.router)
