"""Devices that nothing waits for: one without data, which can give none back, and a GPU if there is one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICES: Final = ("meta", *(["cuda:0"] if torch.cuda.is_available() else []))
# Operations whose result has a size that the data decide, or is a number of the CPU.
_WAITING: Final = frozenset(
    {
        "aten::_linalg_check_errors",
        "aten::_local_scalar_dense",
        "aten::_unique",
        "aten::_unique2",
        "aten::bincount",
        "aten::equal",
        "aten::is_nonzero",
        "aten::item",
        "aten::masked_select",
        "aten::multinomial",
        "aten::nonzero",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::unique_dim_consecutive",
    }
)
_INDEXING: Final = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})


class WaitingError(AssertionError):
    """An operation waits for the device."""


@contextmanager
def nothing_waits(device: torch.device) -> Iterator[None]:
    """Raise where the CPU waits for a device: a WaitingError, or the RuntimeError of CUDA's check."""
    if device.type == "cuda":
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
    else:
        with _Numbers(), _Operations():  # type: ignore[no-untyped-call]
            yield


class _Numbers(TorchFunctionMode):
    """Refuses to make tensors on the device from numbers of the CPU, which copies them there and waits."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = (kwargs or {}).get("device")
        made = func in (torch.tensor, torch.as_tensor) and torch.device(named or "cpu").type != "cpu"
        if func is Tensor.new_tensor or (
            func in (Tensor.__getitem__, Tensor.__setitem__) and _has_list(args[1])
        ):
            made = args[0].device.type != "cpu"
        if made:
            raise WaitingError(f"{func.__name__} copies numbers to the device")
        return func(*args, **(kwargs or {}))


def _has_list(index: Any) -> bool:
    return any(isinstance(part, list) for part in (index if isinstance(index, tuple) else (index,)))


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations that wait for the device, of which one without data lets some pass."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, tensors = func._schema.name, [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if any(tensor.device.type != "cpu" for tensor in tensors) or _target(kwargs) is not None:
            _check(name, args, kwargs)
        return func(*args, **kwargs)


def _target(kwargs: Mapping[str, Any]) -> torch.device | None:
    """The device that is named, unless it is the CPU."""
    device = kwargs.get("device")
    return None if device is None or device.type == "cpu" else device


def _check(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if name in _WAITING or (name == "aten::repeat_interleave" and kwargs.get("output_size") is None):
        raise WaitingError(f"{name} waits for the device")
    if name in _INDEXING and not all(_is_place(index, args[0].device) for index in args[1]):
        raise WaitingError(f"{name} counts a mask, or copies places to the device")
    ends, asynchronous = None, kwargs.get("non_blocking", False)
    if name == "aten::_to_copy":
        ends = args[0].device, kwargs.get("device") or args[0].device
    elif name == "aten::copy_":
        ends, asynchronous = (args[1].device, args[0].device), asynchronous or any(args[2:])
    if ends is not None and ends[0].type != ends[1].type and (not asynchronous or ends[1].type == "cpu"):
        raise WaitingError(f"{name} from {ends[0]} to {ends[1]} waits for the device")


def _is_place(index: Tensor | None, device: torch.device) -> bool:
    """Whether a tensor indexes by numbers that are on the device."""
    return index is None or (index.dtype not in (torch.bool, torch.uint8) and index.device == device)


def no_autocast(*_: Any, **__: Any) -> nullcontext[None]:
    """In place of autocast, which does not know a device without data."""
    return nullcontext()


def copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, which is not waited for."""
    return tensor.to(device, non_blocking=True)
