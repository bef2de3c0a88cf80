"""All routes of studies, the archive and the viewer."""

from fastapi import APIRouter

from app.api.radiology import dicomweb, stow, studies

router = APIRouter()
for module in (studies, dicomweb, stow):
    router.include_router(module.router)
