"""What a run is made of, built from a recipe and a manifest."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import torch
import yaml
from torch import Tensor

from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, Record
from training.data.audio import audible
from training.data.augmentation_config import AugmentationConfig
from training.data.labels import Labelling, frequent_words, known_labels
from training.data.pairs import Text, describable
from training.models.audio_towers import build_audio_tower
from training.models.bundle import BundleInfo
from training.models.config import AudioTowerConfig, ImageTowerConfig, Modality, TextTowerConfig
from training.models.dual_encoder import DualEncoder, build_dual_encoder, pretrained_logits
from training.models.features import PretrainedLogits
from training.models.image_towers import build_image_tower
from training.models.learned_tokenizer import build_tokenizer, learn_tokenizer, learn_word_tokenizer
from training.models.preprocessing import Preprocessing, TextPreprocessing
from training.models.pretrained.folder import local_folder
from training.models.pretrained.tokens import load_tokenizer
from training.models.sentence_encoder import SentenceEncoder
from training.models.text_towers import build_text_tower
from training.objectives.base import Objective, ObjectiveContext, ObjectiveData, parse_objective
from training.recipes.schema import Recipe
from training.shortcuts.shortcuts import with_every_digit
from training.trainer.batches import whole_text
from training.trainer.requirements import check_requirements

_COMPILERS: Final = ("g++", "clang++")
logger = logging.getLogger(__name__)

_Tower: TypeAlias = ImageTowerConfig | TextTowerConfig | AudioTowerConfig


def thaw_random_towers(recipe: Recipe) -> Recipe:
    """The recipe with nothing frozen in towers that start from random weights: noise is not worth keeping.

    Raises:
        RecipeError: More layers were to be frozen than such a tower has.
    """
    changes: dict[str, _Tower] = {}
    model = recipe.model
    towers: dict[str, _Tower | None] = {"image": model.image, "text": model.text, "audio": model.audio}
    for name, tower in towers.items():
        if tower is not None and tower.pretrained is None and tower.frozen_layers:
            _check_frozen_layers(name, tower)
            logger.warning(
                "The %s tower starts from random weights, so all its layers are trained. "
                "Give pretrained weights with --set model.%s.pretrained=FOLDER.",
                name,
                name,
            )
            changes[name] = tower.model_copy(update={"frozen_layers": 0})
    return recipe.model_copy(update={"model": model.model_copy(update=changes)})


def heads_alone(recipe: Recipe) -> Recipe:
    """The recipe of `train.heads` with whole towers frozen and without augmentation.

    Raises:
        RecipeError: A tower would keep random weights, encodes sounds, or is trained by LoRA.
    """
    model, train = recipe.model, recipe.train
    if train.lora is not None:
        raise RecipeError("train.lora trains towers and train.heads does not: leave out one of them.")
    if model.audio is not None:
        raise RecipeError(
            "train.heads has towers encode images and texts once, and no sounds: set model.audio to null, or "
            "leave train.heads out."
        )
    changes: dict[str, _Tower] = {}
    towers: dict[str, _Tower | None] = {"image": model.image, "text": model.text}
    for name, tower in towers.items():
        if tower is None:
            continue
        if tower.pretrained is None and train.start_from is None:
            raise RecipeError(
                f"train.heads leaves towers as they are, and the {name} tower has random weights: give "
                f"pretrained ones with --set model.{name}.pretrained=FOLDER, or leave train.heads out."
            )
        changes[name] = tower.model_copy(update={"frozen_layers": "all"})
    if recipe.augmentation.changes:
        logger.warning("Frozen towers encode each image once: augmentation is left out.")
    return recipe.model_copy(
        update={"model": model.model_copy(update=changes), "augmentation": AugmentationConfig()}
    )


def _check_frozen_layers(name: str, tower: _Tower) -> None:
    if tower.frozen_layers == "all":
        return
    layers = _layer_count(tower.model_copy(update={"frozen_layers": 0}))
    if tower.frozen_layers > layers:
        raise RecipeError(
            f"model.{name}.frozen_layers is {tower.frozen_layers}, but the tower has {layers} layers: choose "
            "fewer, or all."
        )


def _layer_count(config: _Tower) -> int:
    """How many layers a tower without pretrained weights has."""
    with torch.device("meta"):
        match config:
            case ImageTowerConfig():
                return len(build_image_tower(config, load_pretrained=False).backbone.layers())
            case TextTowerConfig():
                tokenizer = build_tokenizer(config, ["any text"])
                return len(build_text_tower(config, tokenizer, load_pretrained=False).backbone.layers())
            case AudioTowerConfig():
                return len(build_audio_tower(config, load_pretrained=False).backbone.layers())


def with_temperature(recipe: Recipe, start: BundleInfo | None = None) -> Recipe:
    """The recipe with numbers for a temperature and a bias that pretrained towers bring.

    Args:
        recipe: Recipe of a run.
        start: Bundle that it starts from, whose training tells the temperature that its towers are used to.

    Raises:
        RecipeError: The recipe asks for what the towers do not bring.
    """

    def read() -> PretrainedLogits | None:
        return pretrained_logits(recipe.model) if start is None else _logits_of(start)

    return recipe.model_copy(update={"objective": recipe.objective.with_temperature(read)})


def _logits_of(bundle: BundleInfo) -> PretrainedLogits | None:
    """How the training of a bundle began to make logits; None where its recipe does not say."""
    tree = yaml.safe_load(bundle.recipe)
    try:
        settings = parse_objective(tree.get("objective") if isinstance(tree, dict) else None)
    except ValueError:
        # An earlier release had other settings, or the bundle has no recipe.
        return None
    every = [settings]
    for one in every:
        every += one.parts()
        logits = one.implementation.logits(one) if issubclass(one.implementation, Objective) else None
        if logits is not None:
            return logits
    return None


def usable_records(recipe: Recipe, manifest: Manifest, modalities: frozenset[Modality]) -> Manifest:
    """The records of a split that can be trained on: those that have all that a step takes of an item.

    A text may also be a sentence from their labels.

    Raises:
        DataError: There is none.
    """
    if "audio" in modalities:
        manifest = audible(manifest)
    if not recipe.draws_texts:
        return manifest
    template = recipe.data.label_template if recipe.data.label_sentences else None
    records = describable(manifest.records, template)
    if not records:
        raise DataError(
            f"No image of this split of {manifest.folder} has a text: add texts, or train on labels with "
            "--set data.label_sentences=true."
        )
    return replace(manifest, records=records)


def build_model(
    recipe: Recipe, train_split: Manifest, *, load_pretrained: bool
) -> tuple[DualEncoder, Preprocessing]:
    """The model and what feeds it; a learned tokenizer sees the texts of the train split only."""
    texts: Iterator[str] = (text for record in train_split.records for text in record.texts)
    if recipe.data.shortcut is not None and "text" in recipe.data.shortcut.modalities:
        texts = with_every_digit(texts)
    tokenizer = None if recipe.model.text is None else build_tokenizer(recipe.model.text, texts)
    preprocessing = Preprocessing(recipe.preprocessing, tokenizer)
    model = build_dual_encoder(recipe.model, tokenizer, load_pretrained=load_pretrained)
    model.check_preprocessing(preprocessing.config)
    return model, preprocessing


@dataclass(frozen=True)
class ObjectiveResources:
    """What a recipe gives its objective in addition to the model.

    Attributes:
        sentences: Frozen encoder of the targets of texts; None: there are none.
        captions: Makes the ids of texts that the objective writes; None: there are none.
        labelling: Labels of images; None: there are none.
    """

    sentences: SentenceEncoder | None = None
    captions: TextPreprocessing | None = None
    labelling: Labelling | None = None

    @classmethod
    def of_run(cls, recipe: Recipe, train_split: Manifest, device: torch.device) -> "ObjectiveResources":
        """Return all that a recipe asks for or its train split has.

        Raises:
            RecipeError: The tokenizer of captions is unfit, or there are fewer words than concepts.
        """
        name = recipe.data.target_encoder
        return cls(
            None if name is None else SentenceEncoder.load(name, device),
            _captions(recipe, train_split),
            _labelling(recipe, train_split),
        )

    def data(self, records: Sequence[Record]) -> ObjectiveData:
        """Return the same with the records of a split."""
        return ObjectiveData(
            records, None if self.sentences is None else self.targets, self.captions, self.labelling
        )

    def targets(self, texts: Sequence[Text]) -> Tensor:
        """Return the embeddings (b, T) of texts by the frozen sentence encoder."""
        assert self.sentences is not None
        return self.sentences.encode([whole_text(text) for text in texts])


def _captions(recipe: Recipe, train_split: Manifest) -> TextPreprocessing | None:
    config = recipe.data.captions
    if config is None:
        return None
    if config.pretrained is not None:
        tokenizer = load_tokenizer(local_folder(config.pretrained))
    else:
        texts = (text for record in train_split.records for text in record.texts)
        if config.vocabulary == "words":
            tokenizer = learn_word_tokenizer(texts, config.vocabulary_size, config.min_word_count)
        else:
            tokenizer = learn_tokenizer(texts, config.vocabulary_size)
    if tokenizer.cls_id is None:
        raise RecipeError(
            f"The tokenizer {config.pretrained} puts no start and end around a text, so none can be begun: "
            "choose another as data.captions.pretrained, or null."
        )
    return TextPreprocessing(recipe.preprocessing.text, tokenizer)


def _labelling(recipe: Recipe, train_split: Manifest) -> Labelling:
    """Return the labels of the train split; for a model of concepts, the most frequent words."""
    concepts = recipe.model.concepts
    if concepts is None:
        return Labelling(known_labels(train_split.records))
    words = frequent_words(train_split.records, concepts)
    if len(words) < concepts:
        raise RecipeError(
            f"The texts of the train split have {len(words)} words that can be concepts: set model.concepts "
            f"to {len(words)} or less."
        )
    return Labelling(words, of_texts=True)


def build_objective(recipe: Recipe, train_split: Manifest, resources: ObjectiveResources) -> Objective:
    """Return the objective for the records of the train split, whose rows are the items it may remember.

    Raises:
        RecipeError: The model or the data don't have what it needs.
    """
    context = ObjectiveContext(
        dim=recipe.model.dim,
        embedding_dim=recipe.model.vector_dim,
        instances=len(train_split.records),
        groups=_groups(train_split, recipe.data.one_image_per),
        target_dim=None if resources.sentences is None else resources.sentences.dim,
        vocabulary=None if resources.captions is None else resources.captions.tokenizer.size,
        labels=0 if resources.labelling is None else len(resources.labelling.names),
        pair_attention=recipe.model.pair_attention,
    )
    objective = recipe.objective.build(context)
    check_requirements(objective, recipe)
    return objective


def _groups(split: Manifest, one_image_per: str | None) -> tuple[int, ...] | None:
    """For each record, the number of what it shows; None when all show something of their own."""
    shown = [(record.metadata.get(one_image_per or ""), record.image) for record in split.records]
    names = [image if value is None else ("of", value) for value, image in shown]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return None if len(numbers) == len(names) else tuple(numbers[name] for name in names)


def compile_towers(model: DualEncoder) -> None:
    """Compile the backbones of a model at their first pass; names and weights stay as they are.

    Raises:
        RecipeError: There is no C++ compiler.
    """
    if not any(map(shutil.which, _COMPILERS)):
        raise RecipeError("train.compile needs a C++ compiler: install g++, or set train.compile to false.")
    for tower in (model.image, model.text, model.audio):
        if tower is not None:
            tower.backbone.compile()


def checkpoint_gradients(model: DualEncoder) -> None:
    """Compute the transformer layers of a model's towers a second time in the backward pass.

    Raises:
        RecipeError: No tower has layers that can be computed so.
    """
    backbones = [getattr(model, name).backbone for name in sorted(model.modalities)]
    able = [
        backbone.model
        for backbone in backbones
        if backbone.heads is not None and getattr(backbone, "model", None) is not None
    ]
    if not able:
        raise RecipeError(
            "train.gradient_checkpointing is for transformer layers of transformers, and no tower has any: "
            "set it to false, or train.chunk_size to less."
        )
    for inner in able:
        inner.activation_checkpointing_enable({"use_reentrant": False})
