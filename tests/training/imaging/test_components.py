"""Connected components and dilation, against plain walks over the pixels."""

import numpy as np
import pytest
from numpy.typing import NDArray

from training.imaging.artefacts import dilated, label


def drawn(density: float, shape: tuple[int, int]) -> NDArray[np.bool_]:
    return np.random.default_rng(round(100 * density)).random(shape) < density


def flooded(mask: NDArray[np.bool_]) -> list[set[tuple[int, int]]]:
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    components = []
    while left:
        component, border = set(), [left.pop()]
        while border:
            y, x = border.pop()
            component.add((y, x))
            near = {(y + down, x + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} & left
            left -= near
            border.extend(near)
        components.append(component)
    return components


@pytest.mark.parametrize("density", [0, 0.1, 0.3, 0.41, 0.5, 0.9, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (30, 1), (5, 7), (40, 30)])
def test_components_are_those_that_a_flood_finds(density: float, shape: tuple[int, int]) -> None:
    mask = drawn(density, shape)
    labels, number = label(mask)
    assert np.array_equal(labels > 0, mask)
    components = flooded(mask)
    assert number == len(components)
    assert sorted(len({labels[place] for place in component}) for component in components) == [1] * number


@pytest.mark.parametrize("pixels", [0, 1, 2, 3, 4, 8])
def test_dilation_reaches_so_many_pixels(pixels: int) -> None:
    mask = drawn(0.02, (40, 30))
    padded = np.pad(mask, pixels)
    side = range(2 * pixels + 1)
    reached = np.any([padded[y : y + 40, x : x + 30] for y in side for x in side], axis=0)
    assert np.array_equal(dilated(mask, pixels), reached)
    numbers = mask * np.arange(1, 1_201).reshape(40, 30)
    assert dilated(numbers, pixels).max() == numbers.max()
