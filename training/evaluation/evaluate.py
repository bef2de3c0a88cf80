"""Evaluate an encoder on a manifest: one typed report of all metrics that the data allow."""

from dataclasses import dataclass

import yaml
from pydantic import BaseModel, ConfigDict

from training.common.errors import DataError
from training.common.manifest import Manifest
from training.evaluation.embedding import EmbeddedManifest, ImageTextEncoder, embed_manifest
from training.evaluation.factors import FactorReading, read_factors
from training.evaluation.geometry import Geometry, geometry
from training.evaluation.retrieval import (
    CaptionRetrieval,
    CrossRetrieval,
    Items,
    LabelledVectors,
    LabelPrecision,
    caption_retrieval,
    label_precision,
    labelled_vectors,
    mean_of,
    pair_retrieval,
    recall_between,
)
from training.evaluation.similarity import as_blades

LABEL_TEMPLATE = "{labels}"


@dataclass(frozen=True, slots=True)
class LabelRetrieval:
    """Precision by label, searched by image and by a sentence made of each label.

    Attributes:
        image_to_image: Queries are all images with a label.
        text_to_image: Queries are one sentence per label; None if the encoder has no text tower or compares
            texts with images pair by pair.
        mean: Mean over both directions and all k, as reported for CheXpert 8x200; None without texts.
    """

    image_to_image: LabelPrecision | None
    text_to_image: LabelPrecision | None
    mean: float | None


class EvaluationReport(BaseModel):
    """Metrics of an encoder on a data set; None where the data don't allow them.

    `with_shortcut` is the report with a synthetic shortcut in images and texts, if requested.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int
    texts: int
    skipped: int
    truncated: int
    captions: CaptionRetrieval | None
    labels: LabelRetrieval | None
    geometry: Geometry | None
    sounds: int = 0
    skipped_sounds: int = 0
    between: tuple[CrossRetrieval, ...] = ()
    factors: tuple[FactorReading, ...] = ()
    with_shortcut: "EvaluationReport | None" = None

    def metrics(self) -> dict[str, float]:
        """Flat metrics by name, for bundles and checkpoint selection."""
        return {name: value for name, value in self._figures() if value is not None}

    def _figures(self) -> list[tuple[str, float | None]]:
        figures: list[tuple[str, float | None]] = []
        if self.captions is not None:
            figures.append(("rsum", self.captions.rsum))
            figures += [(f"image_recall_at_{k}", value) for k, value in self.captions.image_recall.items()]
            figures += [(f"text_recall_at_{k}", value) for k, value in self.captions.text_recall.items()]
        for search in self.between:
            name = f"{search.query}_to_{search.candidate}_recall_at"
            figures += [(f"{name}_{k}", value) for k, value in search.recall.items()]
        heard = [search for search in self.between if {search.query, search.candidate} == {"image", "audio"}]
        if heard and self.captions is None:
            # Without texts, select by the recall between images and sounds.
            figures.append(("rsum", sum(sum(search.recall.values()) for search in heard)))
        if self.labels is not None:
            by_image, by_text = (
                {} if each is None else each.precision
                for each in (self.labels.image_to_image, self.labels.text_to_image)
            )
            for k in by_text or by_image:
                figures += [
                    (f"precision_at_{k}", mean_of([by_image.get(k), by_text.get(k)])),
                    (f"image_precision_at_{k}", by_image.get(k)),
                    (f"text_precision_at_{k}", by_text.get(k)),
                ]
        if self.geometry is not None:
            names = ("alignment", "image_uniformity", "text_uniformity")
            figures += [(name, getattr(self.geometry, name)) for name in names]
        return figures


def evaluate(
    encoder: ImageTextEncoder,
    manifest: Manifest,
    *,
    batch_size: int = 64,
    label_template: str = LABEL_TEMPLATE,
    show_progress: bool = True,
) -> EvaluationReport:
    """Embed a manifest, usually one split, and measure the encoder on it.

    The manifest's rejections limit how many images may be unreadable. The template makes a query sentence of
    a label by replacing `{labels}`.

    Raises:
        DataError: The manifest is empty, has neither texts nor labels, or too many images are unreadable.
    """
    embedded = embed_manifest(encoder, manifest, batch_size=batch_size, show_progress=show_progress)
    return measure(encoder, embedded, label_template=label_template, factors=True)


def label_template_of(recipe_yaml: str) -> str:
    """The label template of a resolved recipe; without a recipe, the label itself."""
    data = (yaml.safe_load(recipe_yaml) or {}).get("data") or {}
    return str(data.get("label_template") or LABEL_TEMPLATE)


def measure(
    encoder: ImageTextEncoder,
    embedded: EmbeddedManifest,
    *,
    label_template: str = LABEL_TEMPLATE,
    factors: bool = False,
) -> EvaluationReport:
    """Evaluate an embedded manifest; the encoder embeds the sentences of labels.

    Images without a text are left out of caption retrieval, and those without a label out of label precision:
    their matches are unknown. `factors` also probes vectors for labels and metadata, which takes seconds.

    Raises:
        DataError: There are neither texts nor labels nor sounds that the encoder supports.
    """
    captions, shape = _captions(embedded)
    labels = _labels(encoder, embedded, label_template)
    between = _between(embedded)
    if captions is None and labels is None and not between:
        raise DataError(
            "The data have neither texts nor labels nor sounds that this encoder can embed: there is nothing "
            "to measure retrieval by."
        )
    sounds = embedded.sounds
    return EvaluationReport(
        images=len(embedded.records),
        texts=len(embedded.texts),
        skipped=len(embedded.skipped),
        truncated=embedded.truncated,
        captions=captions,
        labels=labels,
        geometry=shape,
        sounds=0 if sounds is None else len(sounds.files),
        skipped_sounds=0 if sounds is None else len(sounds.skipped),
        between=between,
        factors=read_factors(embedded) if factors else (),
    )


def _captions(embedded: EmbeddedManifest) -> tuple[CaptionRetrieval | None, Geometry | None]:
    if not embedded.texts:
        return None, None
    described, _, matches = embedded.described()
    if embedded.pair_scores is not None:
        # Alignment and uniformity don't apply to encoders that compare pairs instead of vectors.
        return pair_retrieval(embedded.pair_scores[described], matches), None
    images = embedded.image_vectors[described]
    return (
        caption_retrieval(images, embedded.text_vectors, matches),
        geometry(images, embedded.text_vectors, matches),
    )


def _between(embedded: EmbeddedManifest) -> tuple[CrossRetrieval, ...]:
    """Recall between sounds and images, and sounds and texts, in both directions."""
    if embedded.sounds is None:
        return ()
    images = Items("image", embedded.image_vectors, [[row] for row in range(len(embedded.records))])
    texts = Items("text", embedded.text_vectors, embedded.text_matches())
    audio = Items("audio", embedded.sounds.vectors, embedded.sounds.matches())
    searches = [recall_between(other, audio) or () for other in (images, texts)]
    return tuple(search for pair in searches for search in pair)


def _labels(encoder: ImageTextEncoder, embedded: EmbeddedManifest, template: str) -> LabelRetrieval | None:
    rows = [row for row, record in enumerate(embedded.records) if record.labels]
    if not rows:
        return None
    images = labelled_vectors(embedded.image_vectors, embedded.records, rows)
    # If all images are of one patient, there are no candidates.
    groups = set(images.groups)
    any_candidate = len(rows) > 1 and (len(groups) > 1 or None in groups)
    by_image = label_precision(images, images) if any_candidate else None
    if "text" not in encoder.modalities or embedded.pair_scores is not None:
        return None if by_image is None else LabelRetrieval(by_image, None, None)
    names = sorted({label for labels in images.labels for label in labels})
    vectors = encoder.embed_texts([template.replace("{labels}", name) for name in names]).vectors
    shaped = as_blades(vectors, encoder.blades, unsigned=encoder.unsigned)
    by_text = label_precision(LabelledVectors(shaped, [(name,) for name in names]), images)
    figures = list(by_text.precision.values()) + (list(by_image.precision.values()) if by_image else [])
    return LabelRetrieval(by_image, by_text, mean_of(figures))
