"""How vectors lie: what a search by neighbours finds hard or easy in them.

Run `python -m tests.benchmarks.search.neighbour_statistics FILE.npy` to compare real vectors (N, D) with made
ones of the same number and length.
"""

import argparse
from pathlib import Path
from typing import Final

import numpy as np
import typer

from tests.benchmarks.search.brute_force import nearest
from tests.benchmarks.search.made_vectors import Vectors, make_vectors

_HELD_OUT: Final = 1000
_SAMPLE: Final = 10_000
_ENERGIES: Final = (8, 32, 128, 256, 512)
_PLACES: Final = (1, 10, 100)


def main() -> None:
    """Print the statistics of the file's vectors beside those of made ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("vectors", type=Path, help="real vectors (N, D), float32 or float16, in a .npy file")
    real = np.load(parser.parse_args().vectors).astype(np.float32)
    real = real[np.random.default_rng(0).permutation(len(real))]
    real /= np.linalg.norm(real, axis=1, keepdims=True)
    made = make_vectors(len(real), 1, real.shape[1]).vectors
    columns = {"real": neighbour_statistics(real), "made": neighbour_statistics(made)}
    typer.echo(
        f"{len(real):,} vectors of {real.shape[1]}".ljust(44) + "".join(f"{name:>10}" for name in columns)
    )
    for name in columns["real"]:
        typer.echo(f"{name:44}" + "".join(f"{column[name]:10.3f}" for column in columns.values()))


def neighbour_statistics(vectors: Vectors) -> dict[str, float]:
    """Describe unit vectors (N, D) in random order; the first are held out to search for their neighbours."""
    held_out, others = vectors[:_HELD_OUT], vectors[_HELD_OUT:]
    found = nearest(others, held_out, max(_PLACES))
    distances = np.sqrt(np.maximum(2 - 2 * found.scores, 1e-12))
    figures = {"length of the mean": float(np.linalg.norm(others.mean(axis=0)))}
    centred = others[:_SAMPLE] - others[:_SAMPLE].mean(axis=0)
    energy = np.sort(np.linalg.eigvalsh(centred.T @ centred))[::-1].cumsum()
    for directions in _ENERGIES[: np.searchsorted(_ENERGIES, vectors.shape[1])]:
        figures[f"variance in {directions} directions"] = float(energy[directions - 1] / energy[-1])
    for place in _PLACES:
        for share in (10, 50, 90):
            name = f"cosine of neighbour {place}, percentile {share}"
            figures[name] = float(np.percentile(found.scores[:, place - 1], share))
    for k in (20, 100):
        figures[f"local dimension by {k} neighbours, median"] = _local_dimension(distances[:, :k])
    counts = np.bincount(found.keys[:, :10].ravel(), minlength=len(others)).astype(np.float64)
    figures["skewness of being a neighbour"] = float((((counts - counts.mean()) / counts.std()) ** 3).mean())
    return figures


def _local_dimension(distances: Vectors) -> float:
    """Estimate the dimension around each query from distances (Q, k), rising (Levina and Bickel 2004)."""
    ratios = np.log(distances[:, -1:] / np.maximum(distances[:, :-1], 1e-6))
    return float(np.median(1 / ratios.mean(axis=1)))


if __name__ == "__main__":
    main()
