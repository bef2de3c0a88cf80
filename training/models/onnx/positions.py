"""Position embeddings of images of one size, which the export cannot interpolate."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

_METHOD = "interpolate_pos_encoding"


def fix_positions(model: nn.Module, run: Callable[[], Tensor]) -> None:
    """Keep the interpolated position embeddings of a model.

    Args:
        model: Interpolates no more from now on.
        run: A pass of the model over images of its size.
    """
    for module in model.modules():
        if hasattr(module, _METHOD):
            setattr(module, _METHOD, _Kept(getattr(module, _METHOD)))
    run()


class _Kept:
    """The first result of a function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function
        self._result: Tensor | None = None

    def __call__(self, *arguments: Any) -> Tensor:
        if self._result is None:
            self._result = self._function(*arguments).detach()
        return self._result
