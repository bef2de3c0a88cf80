"""Pictures with shapes of all sizes, which survive scaling as photographs do; noise would not."""

import numpy as np
from PIL import Image


def smooth_picture(seed: int, size: tuple[int, int] = (200, 160)) -> Image.Image:
    generator = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3))
    for cells, weight in ((4, 1.0), (8, 0.7), (16, 0.4)):
        noise = generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        total += weight * np.asarray(Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC))
    return Image.fromarray((total / 2.1).astype(np.uint8))
