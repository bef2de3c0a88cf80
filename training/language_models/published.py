"""Results of RECLAIM's paper for language models (tables 4 and 7), by the recipe of each row."""

from collections.abc import Mapping
from types import MappingProxyType

from training.language_models.config import LanguageModelRecipe

NAMES = ("elbo", "perplexity", "kl", "mutual_information", "active_units")
# The paper prints the negative ELBO. Where both tables have a row, these are the figures of table 4.
_ROWS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "lm-ptb-vae": (-102.6, 108.26, 1.08, 0.8, 2),
        "lm-ptb-beta-vae": (-104.5, 117.92, 7.50, 3.1, 5),
        "lm-ptb-sa-vae": (-102.6, 107.71, 1.23, 0.7, 2),
        "lm-ptb-cyc-vae": (-103.1, 110.50, 3.48, 1.8, 5),
        "lm-ptb-ivae": (-87.6, 54.46, 6.32, 3.5, 32),
        "lm-ptb-ivae-cl": (-88.1, 55.2, 1.6, 4.1, 32),
        "lm-ptb-ivae-reclaim": (-85.6, 48.7, 5.88, 4.43, 32),
        "lm-ptb-vae-reclaim": (-102.1, 107.15, 1.2, 0.9, 5),
        "lm-ptb-cyc-vae-reclaim": (-98.8, 105.7, 4.18, 2.2, 10),
        "lm-yelp-vae": (-357.9, 40.56, 0.0, 0.0, 0),
        "lm-yelp-beta-vae": (-358.2, 40.69, 4.2, 2.0, 4),
        "lm-yelp-sa-vae": (-355.9, 39.73, 2.8, 1.7, 8),
        "lm-yelp-cyc-vae": (-355.9, 39.73, 3.8, 2.4, 11),
        "lm-yelp-ivae": (-348.2, 36.70, 7.6, 4.6, 32),
        "lm-yelp-ivae-cl": (-350.1, 37.1, 6.6, 3.7, 32),
        "lm-yelp-ivae-reclaim": (-346.6, 36.5, 4.2, 4.4, 32),
        "lm-yelp-vae-reclaim": (-352.1, 40.2, 2.1, 1.7, 10),
        "lm-yelp-cyc-vae-reclaim": (-350.2, 39.73, 4.5, 3.3, 25),
    }
)


def published(recipe: LanguageModelRecipe) -> dict[str, float]:
    """The figures of the row that a recipe is named after; empty where there is none."""
    return dict(zip(NAMES, _ROWS.get(recipe.name, ()), strict=False))
