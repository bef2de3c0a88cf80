"""All routes of studies, the archive and the viewer."""

from fastapi import APIRouter

from app.radiology.routes import dicomweb, indexing, results, stow, studies, viewer

router = APIRouter()
for module in (studies, results, indexing, dicomweb, stow, viewer):
    router.include_router(module.router)
