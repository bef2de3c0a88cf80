"""The typed recipe: everything that a training run depends on besides the data."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from training.common.frozen import Frozen
from training.data.augmentation_config import AugmentationConfig
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.shortcuts.config import ShortcutConfig

if TYPE_CHECKING:
    from training.objectives.base import ObjectiveConfig

Precision = Literal["auto", "fp32", "tf32", "bf16"]
PRECISION_HELP: Final = (
    "auto: bf16 on a GPU that has it, else float32. tf32: float32, with products rounded to 10 bits on a GPU."
)


class UnreadObjective(BaseModel):
    """Stands for an objective while everything else of a recipe is checked: reading it needs torch."""

    modalities: frozenset[str] = frozenset({"image", "text"})


def _read_objective(value: Any, info: ValidationInfo) -> BaseModel:
    if info.context == WITHOUT_OBJECTIVE:
        return UnreadObjective()
    from training.objectives.base import parse_objective

    return parse_objective(value)


# Context of a validation that leaves the objective for later.
WITHOUT_OBJECTIVE: Final = "without the objective"
if TYPE_CHECKING:
    _Objective = ObjectiveConfig
else:
    _Objective = Annotated[SerializeAsAny[BaseModel], BeforeValidator(_read_objective)]


class CaptionsConfig(Frozen):
    """The words that an objective writes texts with, at most `preprocessing.text.max_tokens` a text."""

    pretrained: str | None = Field(
        default=None,
        description="Local folder or hub name of a tokenizer; None: one is learned from the train split.",
    )
    vocabulary_size: int = Field(default=8192, ge=300, description="Upper bound of a learned one.")
    vocabulary: Literal["pieces", "words"] = Field(
        default="words",
        description="What a learned one tells apart: whole words, of which one stands for all unknown, or "
        "pieces of words.",
    )
    min_word_count: int = Field(
        default=1, gt=0, description="A word that occurs less often in the train split is an unknown one."
    )


class DataConfig(Frozen):
    """What is drawn from the manifest's train split."""

    label_sentences: bool = Field(
        default=False,
        description="Images without texts are trained with a sentence made from their labels.",
    )
    label_template: str = "a chest radiograph showing {labels}"
    text_unit: Literal["sentence", "report"] = Field(
        default="sentence",
        description="What is paired with an image: one random text of it, or all of them in their order.",
    )
    one_image_per: str | None = Field(
        default=None,
        description="Metadata key, such as that of a study: one random image a value and epoch is drawn.",
    )
    epoch_of: Literal["images", "texts"] = Field(
        default="images",
        description="What an epoch goes through: every image once with a random text, or every text once "
        "with its image, which is then drawn as often as it has texts.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        description="Threads that decode, and processes for DICOM files; 0: as many as there are cores.",
    )
    cache_images: bool | Literal["memory"] = Field(
        default=True,
        description="Decode all images before the first step and keep them resized: a thousand and more in "
        "the user's cache folder, for all processes and later runs; memory: leave nothing on a disk; false: "
        "decode them for every batch.",
    )
    max_rejected: float = Field(
        default=1.0, ge=0, le=1, description="Share of broken lines and images above which the run stops."
    )
    shortcut: ShortcutConfig | None = Field(
        default=None,
        description="Synthetic shortcut that training images and texts share, such as unique or bits:4.",
    )
    target_encoder: str | None = Field(
        default=None,
        description="Local folder or hub name of the frozen sentence encoder whose embeddings ltd decodes.",
    )
    captions: CaptionsConfig | None = Field(
        default=None, description="Gives texts to objectives that write them, such as {vocabulary: words}."
    )

    @model_validator(mode="after")
    def _epoch_of_single_texts(self) -> Self:
        if self.epoch_of == "texts" and (self.text_unit != "sentence" or self.one_image_per is not None):
            raise ValueError(
                "an epoch of texts draws each text of every image: set text_unit to sentence and "
                "one_image_per to null, or epoch_of to images"
            )
        return self

    @field_validator("label_template")
    @classmethod
    def _has_place(cls, template: str) -> str:
        if "{labels}" not in template or template.replace("{labels}", "").count("{"):
            raise ValueError("the sentence needs {labels} where the labels go, and no other braces")
        return template


class OptimizerConfig(Frozen):
    """The optimizer: adam (Adam with L2), adamw (with decoupled weight decay), or another one of torch."""

    name: str = Field(
        default="adamw", description="adam, adamw, or the name of a class of torch.optim, such as SGD."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Further arguments of that class, such as {momentum: 0.9}."
    )
    lr: float = Field(
        gt=0, description="Learning rate of heads, poolings and the objective's own parameters."
    )
    tower_lr: float | None = Field(default=None, gt=0, description="Learning rate of the towers; None: `lr`.")
    weight_decay: float = Field(default=0.0, ge=0, description="Not applied to biases, norms and scalars.")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        default=(0.9, 0.999), description="Decay of the running means of gradients and of their squares."
    )
    eps: float = Field(default=1e-8, gt=0, description="Added to the root of the mean square of gradients.")
    max_grad_norm: float | None = Field(default=None, gt=0)


class ScheduleConfig(Frozen):
    """Learning rate: linear warm-up, then cosine or linear to zero, constant, or falling in steps."""

    name: Literal["cosine", "linear", "constant", "step"] = "cosine"
    warmup_steps: int = Field(default=0, ge=0)
    decay: float = Field(default=0.1, gt=0, le=1, description="Factor of the rate at each fall of `step`.")
    decay_at: tuple[float, ...] = Field(
        default=(0.5,), description="Shares of the whole run after which the rate of `step` falls."
    )

    @field_validator("decay_at")
    @classmethod
    def _rising_shares(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if list(shares) != sorted(set(shares)) or not all(0 < share < 1 for share in shares):
            raise ValueError("decay_at holds rising shares of the run, each between 0 and 1")
        return shares


class LoraSettings(Frozen):
    """Low-rank updates of towers that keep their own weights (LoRA, Hu et al. 2022)."""

    rank: int = Field(default=8, gt=0, description="Rank of the update of each linear layer.")
    lr: float = Field(
        default=1e-3,
        gt=0,
        description="Learning rate of the updates, instead of optimizer.tower_lr: they begin at zero, and "
        "take ten to a hundred times the rate of whole weights.",
    )
    alpha: int | None = Field(
        default=None, gt=0, description="The update is multiplied by alpha / rank; None: by 1."
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="On the input of the update.")


class TrainConfig(Frozen):
    """Length, batch, precision and bookkeeping of a run."""

    batch_size: int = Field(gt=1, description="Pairs of a step, over all processes together.")
    chunk_size: Annotated[int, Field(gt=0)] | Literal["auto"] | None = Field(
        default="auto",
        description="Pairs that a process encodes at once, for batches larger than its memory; None: all. "
        "auto: all that fit, by a trial before the first step; the recipe in the run's folder says how many.",
    )
    steps: int | None = Field(default=None, gt=0, description="Exactly one of steps and epochs.")
    epochs: int | None = Field(default=None, gt=0)
    precision: Precision = Field(default="auto", description=PRECISION_HELP)
    compile: bool = Field(
        default=False,
        description="Compile the towers by torch.compile: quicker steps on a GPU, after a minute or more at "
        "the start. Needs a C++ compiler.",
    )
    sync_batch_norm: bool = Field(
        default=True,
        description="Several GPUs: batch norm takes its statistics over all of them. On CPUs never.",
    )
    start_from: str | None = Field(
        default=None,
        description="Folder of a bundle whose weights training begins with, and keeps where no epoch is "
        "better; model and preprocessing are then the bundle's. What the objective learns besides begins "
        "anew.",
    )
    heads: bool = Field(
        default=False,
        description="Train heads alone, `recoquest train --heads`: pretrained towers stay as they are and "
        "encode each image and text once. For objectives of global embeddings; images are not augmented.",
    )
    lora: LoraSettings | None = Field(
        default=None,
        description="Train low-rank updates of the towers' transformer layers instead of their weights, for "
        "towers whose optimizer would not fit the memory, or few data; the bundle has them added.",
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="Compute the towers' transformer layers a second time in the backward pass, instead of "
        "keeping what they have computed: less memory, more time.",
    )
    ema_decay: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Measure and keep a moving average of the weights, of which a step replaces "
        "1 - ema_decay (more at the beginning); None: the weights themselves.",
    )
    seed: int = Field(default=0, ge=0)
    evaluate_every_epochs: int = Field(default=1, gt=0)
    checkpoint_minutes: float = Field(
        default=5.0, ge=0, description="At least this often; 0: after every step."
    )
    select_by: Literal["rsum", "precision_at_10", "loss"] = Field(
        default="rsum", description="Validation figure that decides the best checkpoint."
    )
    log_every_steps: int = Field(default=20, gt=0, description="Steps between two lines of metrics.")

    @property
    def encoded_at_once(self) -> int:
        """Most items that are encoded at once, as far as it is settled."""
        return self.chunk_size if isinstance(self.chunk_size, int) else self.batch_size

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of train.steps and train.epochs, and set the other to null")
        return self


class Tuned(Frozen):
    """The grid that a recipe's settings were chosen from: a note for readers, which changes no run."""

    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        min_length=1, description="Values of each setting, by its dotted key."
    )
    data: str = Field(default="", description="What they were compared on.")
    select_by: str = Field(default="", description="Figure that decided.")


class NamedRecipe(Frozen):
    """What every recipe says of itself, whatever it trains."""

    name: str
    description: str
    source: str = Field(default="", description="Where the settings come from.")
    tuned: Tuned | None = Field(
        default=None,
        description="The grid that settings were chosen from. `recoquest tune` takes it if no grid is given.",
    )


def decoded_at_a_scale(images: Any) -> Any:
    """Settings of `ImagePreprocessingConfig` that decode large files at a scale unless they say otherwise."""
    return {"scaled_decoding": True, **images} if isinstance(images, dict) else images


class Recipe(NamedRecipe):
    """A named, complete description of a training run."""

    model: DualEncoderConfig
    preprocessing: PreprocessingConfig = PreprocessingConfig()
    objective: _Objective
    data: DataConfig = DataConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = ScheduleConfig()
    train: TrainConfig

    @model_validator(mode="before")
    @classmethod
    def _decode_at_a_scale(cls, value: Any) -> Any:
        """A new model has no vectors yet that whole decoding was part of."""
        if not isinstance(value, dict):
            return value
        preprocessing = value.get("preprocessing", {})
        image = preprocessing.get("image", {}) if isinstance(preprocessing, dict) else None
        if not isinstance(image, dict):
            return value
        return {**value, "preprocessing": {**preprocessing, "image": decoded_at_a_scale(image)}}

    def settled_as(self, kept: Self) -> Self:
        """The recipe with the number of items that a run encodes at once, which its kept recipe tells."""
        return self.with_chunk_size(kept.train.chunk_size) if self.train.chunk_size == "auto" else self

    def with_chunk_size(self, size: int | Literal["auto"] | None) -> Self:
        """The recipe with another `train.chunk_size`."""
        return self.model_copy(update={"train": self.train.model_copy(update={"chunk_size": size})})

    @property
    def draws_texts(self) -> bool:
        """Whether a training step takes texts, to encode them or to write them."""
        return "text" in self.objective.modalities or self.data.captions is not None

    @model_validator(mode="after")
    def _epoch_of_texts_has_texts(self) -> Self:
        if self.data.epoch_of == "texts" and not self.draws_texts:
            raise ValueError("the objective takes no texts: set data.epoch_of to images")
        return self

    @model_validator(mode="after")
    def _shortcut_has_texts(self) -> Self:
        shortcut = self.data.shortcut
        if shortcut is not None and "text" in shortcut.modalities and self.model.text is None:
            raise ValueError(
                "data.shortcut adds an id to texts, but the model has no text tower: set "
                "data.shortcut.modalities to [image], or add model.text"
            )
        return self
