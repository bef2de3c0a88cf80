"""Schema of maps of what matched."""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.edge.schemas import Answer
from app.generations.schemas import GenerationName
from index.search.results import ActiveGeneration, StoredImage
from training.models.inputs.regions import RegionGrid


class Area(Answer):
    """A part of a picture, in fractions of its width and height, as it stands upright."""

    x: float
    y: float
    width: float
    height: float


class SimilarityMap(Answer):
    """Similarity map: the share of each region of an image in its cosine with a query."""

    id: str = Field(description="Id of the image.")
    cosine: float = Field(description="Cosine of image and query: the mean of the values.")
    width: int = Field(description="Regions in a row.")
    height: int = Field(description="Rows.")
    values: list[list[float]] = Field(
        description="What each region adds to the cosine, row by row from above."
    )
    smallest: float
    largest: float
    area: Area = Field(
        description="Where the grid lies on the picture; beyond 0 and 1 where the model pads the picture."
    )
    picture_width: int = Field(description="Pixels of the upright picture.")
    picture_height: int
    generation: GenerationName = Field(description="Whose model compared them.")

    @classmethod
    def of(
        cls, image: StoredImage, active: ActiveGeneration, grid: RegionGrid, query: NDArray[np.float32]
    ) -> Self:
        """Describe how the regions of an image fit a query vector (D,)."""
        values = grid.similarities(query)
        area = grid.area
        return cls(
            id=image.id,
            cosine=float(values.mean()),
            width=grid.side,
            height=grid.side,
            values=values.tolist(),
            smallest=float(values.min()),
            largest=float(values.max()),
            area=Area(x=area.x, y=area.y, width=area.width, height=area.height),
            picture_width=image.width,
            picture_height=image.height,
            generation=GenerationName(
                collection=active.collection,
                number=active.generation,
                model=active.model,
                digest=active.digest,
            ),
        )
