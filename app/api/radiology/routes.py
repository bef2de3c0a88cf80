"""All routes of studies, the archive and the viewer."""

from fastapi import APIRouter

from app.api.radiology import dicomweb, studies

router = APIRouter()
for module in (studies, dicomweb):
    router.include_router(module.router)
