"""The bytes of tensors that a computation holds, one figure after each of its operations."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages on a device that come and go while the mode is entered.

    Those of arguments are older, and not counted. Workspaces inside an operation are seen on a GPU only, by
    what its allocator tells.

    Attributes:
        trace: Bytes in use after each operation.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace: list[int] = []
        self._device = device
        self._held = self._before = 0
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __enter__(self) -> Self:
        """Begin to count."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """End counting."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self._device.type == "cuda" and self.trace:
            peak = torch.cuda.max_memory_allocated(self._device) - self._before
            factor = max(1.0, peak / max(1, *self.trace))
            self.trace = [round(size * factor) for size in self.trace]

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count the storages that it has made."""
        older = {id(storage) for storage in self._storages_in((args, kwargs))}
        result = func(*args, **kwargs or {})
        for storage in self._storages_in(result):
            if id(storage) not in older and id(storage) not in self._storages:
                self._hold(storage)
        self.trace.append(self._held)
        return result

    def _storages_in(self, values: Any) -> list[torch.UntypedStorage]:
        tensors = (value for value in tree_iter(values) if isinstance(value, Tensor))
        return [tensor.untyped_storage() for tensor in tensors if tensor.device.type == self._device.type]

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def release(_: object) -> None:
            del self._storages[key]
            self._held -= size

        self._storages[key] = weakref.ref(storage, release)
        self._held += size


@dataclass(frozen=True, slots=True)
class Growth:
    """The memory of one computation on two numbers of items, and so on any.

    Attributes:
        few: The smaller number.
        many: The larger; may be the same.
        trace_of_few: Bytes after each operation.
        trace_of_many: The same.
    """

    few: int
    many: int
    trace_of_few: Sequence[int]
    trace_of_many: Sequence[int]

    def at(self, items: int) -> int:
        """The most bytes in use at any time for so many items.

        Each operation's figure is a constant and a part that grows with the items; the largest need not be
        the same operation's. Where the operations themselves depend on the items, all of it is taken to grow.
        """
        peak = max(self.trace_of_many, default=0)
        if self.few == self.many or len(self.trace_of_few) != len(self.trace_of_many):
            return -(-peak * max(items, self.many) // self.many)
        share = (items - self.few) / (self.many - self.few)
        both = zip(self.trace_of_few, self.trace_of_many, strict=True)
        return round(max((few + (many - few) * share for few, many in both), default=0))
