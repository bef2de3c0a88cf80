"""The examination of an installation: settings, machine, disk, catalogue, jobs, images and encoders."""

import os
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Final

import torch

from app.health.doctor.finding import Finding
from app.health.doctor.home import examine_home
from app.health.doctor.indexed import examine_indexed
from app.health.doctor.versions import examine_versions
from app.settings import GONE, PREFIX, Settings, unknown_variables
from training.common.errors import RecoquestError
from training.common.memory import free_memory
from training.models.encoder import choose_device

_GIB: Final = 1 << 30
_LOW_MEMORY: Final = 2 * _GIB


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything that the service needs; what is found comes one by one.

    An older catalogue is brought up to date, as by every command.
    """
    yield _settings()
    yield examine_versions()
    for subject, look in (("memory", _memory), ("device", _device), ("home", examine_home)):
        yield _guarded(subject, settings, look)
    yield from examine_indexed(settings)


def _guarded(subject: str, settings: Settings, look: Callable[[Settings], Finding]) -> Finding:
    try:
        return look(settings)
    except (RecoquestError, OSError) as error:
        return Finding(subject, "wrong", str(error))


def _settings() -> Finding:
    unknown = [name for name in unknown_variables() if name != "RECOQUEST_DEBUG"]
    if unknown:
        found = f"{', '.join(map(_slip, unknown))}: not a setting, and without effect"
        advice = "mend the name or remove it; docs/configuration.md lists all settings"
        return Finding("settings", "doubtful", f"{found}: {advice}.")
    return Finding("settings", "ok", "every RECOQUEST_ variable is a setting")


def _slip(name: str) -> str:
    """A variable that is no setting, with the setting that it may have been meant for."""
    if name.upper() in GONE:
        return f"{name} (of an older version)"
    near = get_close_matches(name, [PREFIX + field.upper() for field in Settings.model_fields], n=1)
    return f"{name} (for {near[0]}?)" if near else name


def _memory(_settings: Settings) -> Finding:
    free, cores = free_memory(), len(os.sched_getaffinity(0))
    found = f"{free / _GIB:.1f} GiB free, {cores} cores"
    if free < _LOW_MEMORY:
        return Finding("memory", "doubtful", f"{found}: an encoder and its index may need more.")
    return Finding("memory", "ok", found)


def _device(settings: Settings) -> Finding:
    device = choose_device(settings.device)
    # A driver that does not fit shows in the first computation only.
    try:
        torch.ones(8, device=device).sum().item()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        advice = f"update its driver to one for CUDA {torch.version.cuda}, or give --device cpu"
        if device.type != "cuda":
            advice = "give --device cpu, or cuda where there is a GPU"
        return Finding("device", "wrong", f"{device} does not compute: {reason}: {advice}.")
    if device.type != "cuda":
        return Finding("device", "ok", f"{device}; {torch.cuda.device_count()} GPUs are there")
    total = torch.cuda.get_device_properties(device).total_memory
    return Finding("device", "ok", f"{torch.cuda.get_device_name(device)}, {total / _GIB:.0f} GiB")
