"""Calls of jobs and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from recoquest_client import answers
from recoquest_client.call import Call, reading
from recoquest_client.operations.requests import begin, get

_JOB = "/v1/jobs/{job}"


def create_job(kind: str, arguments: Mapping[str, Any]) -> Call[answers.Job]:
    """Give a job to the workers."""
    return begin("create_job", "/v1/jobs", reading(answers.Job), {}, {"kind": kind, **arguments})


def list_jobs(state: str | None, kind: str | None, limit: int) -> Call[answers.JobPage]:
    """List a page of jobs."""
    params = {"state": state, "kind": kind, "limit": limit}
    return get("list_jobs", "/v1/jobs", reading(answers.JobPage), params=params)


def get_job(job: int) -> Call[answers.Job]:
    """Describe a job."""
    return get("get_job", _JOB, reading(answers.Job), {"job": job})


def cancel_job(job: int) -> Call[answers.Job]:
    """Cancel a job."""
    return begin("cancel_job", f"{_JOB}/cancel", reading(answers.Job), {"job": job})


def stream_job_events(job: int) -> Call[answers.Job]:
    """Follow a job."""
    call = get("stream_job_events", f"{_JOB}/events", reading(answers.Job), {"job": job})
    return replace(call, headers={"Accept": "text/event-stream"})


def list_audit(
    since: datetime | str | None,
    until: datetime | str | None,
    collection: str | None,
    action: str | None,
    limit: int,
) -> Call[answers.AuditPage]:
    """List a page of the audit trail."""
    params = {
        "since": since.isoformat() if isinstance(since, datetime) else since,
        "until": until.isoformat() if isinstance(until, datetime) else until,
        "collection": collection,
        "action": action,
        "limit": limit,
    }
    return get("list_audit", "/v1/audit", reading(answers.AuditPage), params=params)
