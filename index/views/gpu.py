"""The GPU on which FAISS may scan vectors."""

import logging
from functools import cached_property
from typing import Any, Final

import faiss

_log = logging.getLogger(__name__)
_CPU: Final = "cpu"


class Gpu:
    """The GPU that a setting names, if FAISS can use one.

    Args:
        name: "auto", "cuda" or "cuda:N"; "cpu" for none.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def number(self) -> int | None:
        """The number of the GPU; None where there is none."""
        if self._name == _CPU:
            return None
        library: Any = faiss
        count = int(library.get_num_gpus()) if hasattr(library, "get_num_gpus") else 0
        _, _, number = self._name.partition(":")
        wanted = int(number) if number.isdecimal() else 0
        return wanted if wanted < count else None

    @cached_property
    def _resources(self) -> Any:
        library: Any = faiss
        return library.StandardGpuResources()

    def new_index(self, dim: int) -> Any:
        """Return an empty flat index of float16 vectors on the GPU."""
        library: Any = faiss
        config = library.GpuIndexFlatConfig()
        config.useFloat16, config.device = True, self.number
        return library.GpuIndexFlatIP(self._resources, dim, config)

    def free(self) -> int | None:
        """Return the bytes that can still be taken on it; None where there is none, or it does not answer."""
        if self.number is None:
            return None
        library: Any = faiss
        try:
            return int(library.getFreeMemory(self.number))
        except (AttributeError, RuntimeError) as error:
            _log.warning("no vectors are scanned on the GPU, which does not answer: %s", error)
            return None
