"""Vectors of keys of which some may be removed while they are asked for."""

from index.vectors.protocol import Keys, Vectors, VectorView


def held_vectors(view: VectorView, keys: Keys) -> tuple[Keys, Vectors]:
    """Return those of keys (N,) that a view still holds, in their order, and their vectors."""
    while True:
        try:
            return keys, view.vectors(keys)
        except KeyError as gone:
            keys = keys[keys != gone.args[0]]
