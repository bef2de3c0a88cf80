"""QUEST's normals: one vector at right angles to both the shared and the unique output."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

NORM_EPS = 1e-7
PARALLEL_EPS = 1e-6


def normal_of(shared: Tensor, unique: Tensor) -> Tensor:
    """Unit normals of the planes that shared and unique outputs span, outside autocast.

    The length of either output has no influence. Where both are parallel there is no plane: below a millionth
    of the product of their lengths the normal is rounding and stays that short instead of being stretched to
    length 1, so such a pair resembles nothing and its gradient is finite.

    Args:
        shared: (..., D), any float type, D at least 3.
        unique: (..., D).

    Returns:
        (..., D - D % 3) in float32, or in float64 when an input is float64.
    """
    with torch.autocast(shared.device.type, enabled=False):
        shared, unique = (
            normalize(output.to(torch.promote_types(output.dtype, torch.float32)), dim=-1, eps=NORM_EPS)
            for output in (shared, unique)
        )
        return unit_normal(shared, unique)


def unit_normal(shared: Tensor, unique: Tensor) -> Tensor:
    """Normals as `normal_of` makes them, of outputs (..., D) that already have length 1."""
    return normalize(block_cross(shared, unique), dim=-1, eps=PARALLEL_EPS)


def block_cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross products of consecutive triples (QUEST, Z^n = Z^s x Z^u); the last D mod 3 numbers are not used.

    Args:
        a: (..., D).
        b: (..., D).

    Returns:
        (..., D - D % 3), at right angles to both.
    """
    used = a.shape[-1] - a.shape[-1] % 3
    first, second = (output[..., :used].reshape(*output.shape[:-1], used // 3, 3) for output in (a, b))
    product: Tensor = torch.linalg.cross(first, second)
    return product.flatten(-2)
