"""The contract of every objective: a module that gives the loss of a batch, and a recipe's settings of it.

An objective's settings are the keyword arguments of its class, with their checks: `ReCo(negative_weight=.6)`
accepts what `objective: {name: reco, negative_weight: .6}` accepts.
"""

import importlib
import inspect
import sysconfig
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from importlib.metadata import entry_points
from pathlib import Path
from types import new_class
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast, get_args, get_type_hints

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from torch import Tensor, nn

from training.common.distributed import process_count
from training.common.errors import RecipeError, RecoquestError
from training.common.record import Record
from training.data.labels import Labelling
from training.models.config import Modality, PairAttentionConfig, Retrieval
from training.models.features import Extra, Features, ModalityFeatures, PretrainedLogits, Source
from training.objectives.similarity import Similarities, full_precision, similarities

Pairs = tuple[tuple[Modality, Modality], ...]
# Takes texts, or the sentences of each.
ForTexts = Callable[[Sequence[str | tuple[str, ...]]], Extra]
Requirement = Literal["local", "branches", "views", "momentum", "one_vector"]

IMAGE_AND_TEXT: Final[Pairs] = (("image", "text"),)


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A loss and its parts.

    Attributes:
        total: Scalar to minimize, with gradient.
        terms: Detached scalars to report, by name. They get the type and the device of `total`, because a
            report stacks them.
    """

    total: Tensor
    terms: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        """Move all terms to the device of the total."""
        terms = {name: term.to(self.total, non_blocking=True) for name, term in self.terms.items()}
        object.__setattr__(self, "terms", terms)


@dataclass(frozen=True, slots=True)
class ObjectiveContext:
    """Sizes of the model and the data. A run passes those that an objective's class has as arguments.

    Attributes:
        dim: Width D of the model's space and of its local features.
        embedding_dim: Width of the embeddings, if it isn't `dim`, as where two branches are searched.
        instances: Number of items of the train split.
        groups: For each item the number of its image; None: every item has its own image.
        target_dim: Width of the embeddings of `data.target_encoder`; None: there is none.
        vocabulary: Number of ids of `data.captions`; None: there are none.
        labels: Number of labels of images; 0: no item has any.
        pair_attention: How the model compares images and texts by their local features, if it does.
    """

    dim: int
    embedding_dim: int | None = None
    instances: int = 0
    groups: tuple[int, ...] | None = None
    target_dim: int | None = None
    vocabulary: int | None = None
    labels: int = 0
    pair_attention: PairAttentionConfig | None = None


@dataclass(frozen=True)
class ObjectiveData:
    """A split of the data, as an objective may use it.

    Attributes:
        records: Records in the order of the rows that batches draw.
        targets: Makes embeddings (b, T) of texts by `data.target_encoder`; None: there is none.
        captions: Makes ids of texts, with a start and an end, by `data.captions`; None: there are none.
        labelling: Labels of images, or concepts; None: there are none.
    """

    records: Sequence[Record]
    targets: ForTexts | None = None
    captions: ForTexts | None = None
    labelling: Labelling | None = None

    def labels(self) -> dict[str, Tensor]:
        """Return which labels each record has, (N, L) bool, as `labels`."""
        return {} if self.labelling is None else {"labels": torch.from_numpy(self.labelling.of(self.records))}


@dataclass(frozen=True)
class Extras:
    """What batches carry for an objective alone; `Features.extras` has it under these names.

    Attributes:
        rows: Tensors (N, ...) with a row for each record of the split.
        texts: Functions that make (b, ...) of the texts that a batch draws.
    """

    rows: Mapping[str, Tensor] = field(default_factory=dict)
    texts: Mapping[str, ForTexts] = field(default_factory=dict)

    def __or__(self, other: "Extras") -> "Extras":
        """Return both."""
        return Extras({**self.rows, **other.rows}, {**self.texts, **other.texts})


_LACKING: Final[Mapping[str, str]] = {
    "instances": "training items",
    "target_dim": "embeddings of a frozen sentence encoder: set data.target_encoder to its folder",
    "vocabulary": "texts as words: give data.captions, such as {vocabulary: words}",
    "labels": "labels: add `labels` to images of the train split",
    "pair_attention": "a way to compare pairs: give model.pair_attention, such as {queries: words}",
}
_SIZES: Final = frozenset(field.name for field in fields(ObjectiveContext))


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that checks its arguments by the settings that recipes have."""

    @wraps(init)
    def checked(self: Objective, *args: Any, **options: Any) -> None:
        cls = type(self)
        if cls.__init__ is not checked:
            # A subclass with arguments of its own calls this one, and has checked them.
            return init(self, *args, **options)
        try:
            bound = inspect.signature(init).bind(self, *args, **options)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}, of {', '.join(_arguments(cls))}.") from None
        more = bound.arguments.get("options", {})
        given = {**bound.arguments, **more}
        settings = settings_of(cls, cls.__name__)
        if unknown := sorted(more.keys() - settings.model_fields.keys()):
            names = ", ".join(sorted(settings.model_fields.keys() - {"name"}))
            raise TypeError(f"{cls.__name__}: got an unexpected keyword argument '{unknown[0]}', of {names}.")
        parts = _arguments_for_objectives(cls)
        plain = {
            name: _as_settings(value) if name in parts else value
            for name, value in given.items()
            if name in settings.model_fields and (name, value) != ("base", None)
        }
        try:
            checked_settings = settings.model_validate(plain)
        except ValidationError as error:
            raise ValueError(f"{cls.__name__}: {explained(error)}.") from None
        for name in _SIZES & given.keys():
            if isinstance(given[name], int) and given[name] < 1:
                raise ValueError(f"{cls.__name__}: {name} is {given[name]}, and must be 1 or more.")
        for arguments in (bound.arguments, more):
            # What was checked is what is used: "0.6" is a number from here on.
            for name in plain.keys() & arguments.keys() - parts:
                arguments[name] = getattr(checked_settings, name)
        return init(*bound.args, **bound.kwargs)

    return checked


class Objective(nn.Module, ABC):
    """A loss of the features of a batch. It does no input or output and has neither encoder nor device.

    Call it with two batches of embeddings, or with `Features`: `loss(image, text)` and `loss(features)` are
    scalars. Its own parameters, such as a temperature, are trained with the model's.

    With several processes of `torch.distributed` it takes this process's rows and gathers the others'. After
    the usual averaging of gradients over processes, the gradients are those of one process with the whole
    batch.

    Attributes:
        requires: What Features must have in addition to embeddings; `one_vector`: embeddings are no k-blades.
        needs: Settings of a recipe that the objective can't do without, and for each what it gives.
        momentum: With `momentum` in `requires`, the share that the copy of the encoder keeps at each step.
        retrievals: Outputs by which the trained model may be searched. A loss of cosines doesn't suit
            normals, whose sign is free.
        pairs: Modalities that are brought together; the loss is the mean over these pairs.
        compares_items: The loss tells an item from others, so that a single item says nothing.
        options: Model of further keyword arguments, of a class that takes `**options`.
    """

    options: ClassVar[type[BaseModel] | None] = None
    requires: frozenset[Requirement] = frozenset()
    needs: Mapping[str, str] = {}
    momentum: float = 0.0
    retrievals: frozenset[Retrieval] = frozenset({"shared", "unique", "concat"})
    pairs: Pairs = IMAGE_AND_TEXT
    compares_items: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the arguments of the class wherever it is called."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            type.__setattr__(cls, "__init__", _checked(cls.__init__))

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check arguments that depend on each other, of the class or of a recipe.

        Raises:
            ValueError: They don't fit; the message says which and what to do.
        """

    @classmethod
    def with_temperature(cls, settings: Any, _read: Callable[[], PretrainedLogits | None]) -> Any:
        """Return settings with numbers for a temperature and a bias that pretrained towers bring.

        Args:
            settings: `ObjectiveConfig` of this class.
            _read: Gives the temperature that the towers were trained with, or None. Called only if needed.

        Raises:
            RecipeError: The settings ask for what the towers don't bring.
        """
        return settings

    @classmethod
    def logits(cls, _settings: Any) -> PretrainedLogits | None:
        """Return how a model with these settings begins to make logits; None if it makes none."""
        return None

    @abstractmethod
    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch and its terms, computed in float32 outside autocast."""

    def forward(
        self, image: Tensor | Features, text: Tensor | None = None, positive_mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch, a scalar with gradient.

        Args:
            image: Embeddings (B, D), or (B, k, D) for k-blades; they need not be normalized. Or `Features`,
                alone, for an objective that needs more than embeddings.
            text: The same of the texts; row i belongs to image i.
            positive_mask: (B, B) bool, True where text j belongs to image i, for example a second caption of
                it. Such a pair is neither positive nor negative. The diagonal is True. None: only the
                diagonal.

        Raises:
            ValueError: The batch is empty, shapes differ, or the mask doesn't fit.
        """
        if isinstance(image, Features):
            return self.compute(image).total
        lacking: list[str] = sorted(self.requires - {"one_vector"})
        # A need names what to set for it in a recipe.
        lacking = lacking or [need.partition(":")[0] for need in self.needs.values()]
        if text is None and self.pairs == IMAGE_AND_TEXT and not lacking:
            raise ValueError(
                f"{type(self).__name__} needs two batches: call it with the embeddings of images and of "
                "texts, or with training.models.features.Features."
            )
        if lacking or self.pairs != IMAGE_AND_TEXT or text is None:
            lacking = lacking or ["the features of its modalities"]
            raise ValueError(
                f"{type(self).__name__} needs more than two embeddings ({', '.join(lacking)}): call it with "
                "training.models.features.Features."
            )
        _check_batch(image, text, positive_mask)
        modalities: dict[Source, ModalityFeatures] = {
            "image": ModalityFeatures(image),
            "text": ModalityFeatures(text),
        }
        return self.compute(Features(modalities, positive_mask)).total

    def prepare(self, _data: ObjectiveData) -> Extras:
        """Return what batches of a split carry for this objective alone; most need nothing.

        Called for the train split, and for the validation split if its loss is measured.
        """
        return Extras()

    def check_regions(self, count: int) -> None:
        """Check that images with so many local features fit; called before any image is read.

        Raises:
            RecipeError: They don't.
        """

    def after_step(self) -> None:
        """Update what no gradient teaches. Called once after every step of the optimizer.

        Keep such state in buffers, so that a checkpoint has it.
        """


@contextmanager
def errors_of_own_code() -> Iterator[None]:
    """Name the file and the line of an error in the code of an objective from outside this package.

    Raises:
        RecipeError: Such code raised an error.
    """
    try:
        yield
    except (RecoquestError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        ours = (str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith((*ours, "<"))
        ]
        if not frames:
            raise
        at = frames[-1]
        raise RecipeError(
            f"{at.filename}, line {at.lineno}, in {at.name}: {type(error).__name__}: {error}."
        ) from error


class ImageObjective(Objective, ABC):
    """An objective of images alone, which has no pairs."""

    pairs: Pairs = ()
    compares_items: bool = False


class PairObjective(Objective, ABC):
    """An objective of two modalities at a time; the loss is the mean over `pairs`."""

    @abstractmethod
    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """Return the loss of one pair of modalities of a batch, whose mask is that of the pair."""

    def compute(self, features: Features) -> LossOutput:
        """Return the mean loss over the pairs; terms carry the pair's name if there are several."""
        losses = {
            (first, second): self.pair_loss(
                features[first], features[second], features.of_pair(first, second)
            )
            for first, second in self.pairs
        }
        if len(losses) == 1:
            return next(iter(losses.values()))
        terms = {
            f"{first}-{second}/{name}": value
            for (first, second), loss in losses.items()
            for name, value in loss.terms.items()
        }
        return LossOutput(torch.stack([loss.total for loss in losses.values()]).mean(), terms)


class SimilarityObjective(PairObjective, ABC):
    """An objective that only takes similarities of embeddings: cosines, or those of k-blades."""

    @abstractmethod
    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of the similarities of one pair of modalities."""

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """Return the loss of the similarities of the embeddings, in full precision."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            return self.of_similarities(
                similarities(first.embedding, second.embedding, features.positive_mask)
            )


class ForeignObjective(PairObjective):
    """A module from outside this package as an objective: its `forward(image, text)` gives a scalar.

    It gets float32 embeddings (b, D) of this process's items, and `positive_mask` if it has such an argument.
    """

    requires: frozenset[Requirement] = frozenset({"one_vector"})

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        signature = inspect.signature(module.forward)
        self._takes_mask = "positive_mask" in signature.parameters
        try:
            signature.bind(None, None)
        except TypeError:
            raise RecipeError(
                f"forward() of {type(module).__name__} doesn't take the embeddings of images and of texts: "
                "write forward(self, image, text)."
            ) from None

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """Return what the module gives for the embeddings.

        Raises:
            RecipeError: It isn't a scalar.
        """
        mask = {"positive_mask": features.positive_mask} if self._takes_mask else {}
        with torch.autocast(first.embedding.device.type, enabled=False):
            total = self.module(full_precision(first.embedding), full_precision(second.embedding), **mask)
        if not isinstance(total, Tensor) or total.ndim:
            kind = f"shape {tuple(total.shape)}" if isinstance(total, Tensor) else type(total).__name__
            raise RecipeError(
                f"forward() of {type(self.module).__name__} returned {kind}: return a scalar tensor."
            )
        return LossOutput(total, {})


class ObjectiveConfig(BaseModel):
    """Settings of an objective. `settings_of` makes a subclass with the arguments of each class.

    Attributes:
        name: Name of the objective in recipes, or `module:Class`.
        pairs: Which modalities are brought together; the loss is the mean over these pairs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    implementation: ClassVar[type[nn.Module]]

    pairs: Pairs = IMAGE_AND_TEXT
    name: str

    @field_validator("pairs")
    @classmethod
    def _pairs_of_two(cls, pairs: Pairs) -> Pairs:
        if not getattr(cls.implementation, "pairs", IMAGE_AND_TEXT):
            if pairs:
                raise ValueError("this objective encodes images alone: leave objective.pairs out")
        elif not pairs or len(set(pairs)) < len(pairs) or any(first == second for first, second in pairs):
            raise ValueError("pairs holds one pair of two modalities or more, none of them twice")
        return pairs

    @model_validator(mode="after")
    def _arguments_fit(self) -> Self:
        for part in self.parts():
            if not part.pairs:
                continue
            if part.pairs not in (self.pairs, IMAGE_AND_TEXT):
                raise ValueError("a base takes the pairs of the whole: set objective.pairs, not its base's")
            # Pairs that a part refuses on its own are wrong here as well.
            type(part).model_validate({**part.model_dump(), "pairs": self.pairs})
        if issubclass(self.implementation, Objective):
            self.implementation.check(self)
        return self

    @property
    def modalities(self) -> frozenset[Modality]:
        """What the encoder needs towers for; always images."""
        parts = self.parts()
        if parts and not any(part.pairs for part in parts):
            return frozenset({"image"})
        return frozenset(modality for pair in self.pairs for modality in pair) or frozenset({"image"})

    @property
    def compares_items(self) -> bool:
        """Whether the loss tells an item from others, so that a single item says nothing."""
        return bool(getattr(self.implementation, "compares_items", True))

    def parts(self) -> list["ObjectiveConfig"]:
        """Return the settings of objectives that are arguments of this one."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return [part for value in values for part in _parts_in(value)]

    def with_parts(self, change: Callable[["ObjectiveConfig"], Any]) -> dict[str, Any]:
        """Return all arguments, those that are settings of objectives changed by a function."""

        def changed(value: Any) -> Any:
            if isinstance(value, ObjectiveConfig):
                return change(value)
            return tuple(map(changed, value)) if _parts_in(value) else value

        return {name: changed(getattr(self, name)) for name in type(self).model_fields}

    def with_temperature(self, read: Callable[[], PretrainedLogits | None]) -> Self:
        """Return the settings with temperatures of towers, as `Objective.with_temperature` does."""
        settings: Self = self.model_copy(update=self.with_parts(lambda part: part.with_temperature(read)))
        return (
            self.implementation.with_temperature(settings, read)
            if issubclass(self.implementation, Objective)
            else settings
        )

    def build(self, context: ObjectiveContext) -> Objective:
        """Return the objective with these settings.

        Raises:
            RecipeError: The model or the data don't have what it needs, or its class refuses the arguments.
        """

        def built(part: ObjectiveConfig) -> Objective:
            return part.model_copy(update={"pairs": part.pairs and self.pairs}).build(context)

        arguments = self.with_parts(built)
        del arguments["name"]
        if "pairs" not in _arguments(self.implementation):
            del arguments["pairs"]
        for name, parameter in _arguments(self.implementation).items():
            if name in _SIZES:
                arguments[name] = getattr(context, name)
                if name == "embedding_dim":
                    arguments[name] = context.embedding_dim or context.dim
                if name in _LACKING and not arguments[name] and parameter.default is parameter.empty:
                    raise RecipeError(f"The objective {self.name} needs {_LACKING[name]}.")
        with errors_of_own_code():
            try:
                made = self.implementation(**arguments)
            except ValueError as error:
                raise RecipeError(str(error)) from None
        objective = made if isinstance(made, Objective) else ForeignObjective(made)
        objective.pairs = self.pairs
        return objective


class GivenObjective(ObjectiveConfig):
    """An objective that was passed as an object; a recipe can only say which class it had.

    Attributes:
        by: Name of the class.
    """

    implementation = Objective

    name: str = "given"
    by: str
    _objective: Objective | None = PrivateAttr(None)

    def build(self, context: ObjectiveContext) -> Objective:
        """Return the object.

        Raises:
            RecipeError: The settings were read from a recipe.
        """
        if self._objective is None:
            raise RecipeError(f"The recipe was trained with an object of {self.by}: pass it as objective=.")
        return self._objective


def as_objective(module: nn.Module) -> Objective:
    """Return a module as an objective: itself, or wrapped if it is from outside this package."""
    return module if isinstance(module, Objective) else ForeignObjective(module)


def given_objective(module: nn.Module) -> GivenObjective:
    """Return an object as the objective of a recipe."""
    objective = as_objective(module)
    kind = type(module)
    settings = GivenObjective(pairs=objective.pairs, by=f"{kind.__module__}.{kind.__qualname__}")
    settings._objective = objective
    return settings


@cache
def settings_of(module: Any, name: str) -> type[ObjectiveConfig]:
    """Return the settings class of an objective: a field for each argument that the run doesn't give.

    Args:
        module: Class of the objective; types of arguments may be `Annotated[..., pydantic.Field(...)]`.
        name: Name in recipes.
    """
    hints = get_type_hints(module.__init__, include_extras=True)
    arguments: dict[str, Any] = {"name": (Literal[name], name)}
    if not getattr(module, "pairs", IMAGE_AND_TEXT):
        arguments["pairs"] = (Pairs, ())
    options: type[BaseModel] | None = getattr(module, "options", None)
    if options is not None:
        arguments |= {key: (field.annotation, field) for key, field in options.model_fields.items()}
    for argument, parameter in _arguments(module).items():
        if argument in _SIZES or argument == "pairs":
            continue
        hint = hints.get(argument, Any)
        default = ... if parameter.default is parameter.empty else parameter.default
        if _takes_objectives(hint):
            several = "Sequence" in str(hint)
            kept = getattr(hint, "__metadata__", ())
            hint = tuple[ObjectiveSettings, ...] if several else ObjectiveSettings
            for one in kept:
                hint = Annotated[hint, one]
            default = Field(default_factory=lambda: parse_objective(BASE)) if default is None else default
        arguments[argument] = (hint, default)
    about = {"implementation": module, "__module__": module.__module__}
    base = new_class(
        f"{module.__name__}Settings", (ObjectiveConfig,), exec_body=lambda body: body.update(about)
    )
    return cast(
        "type[ObjectiveConfig]",
        create_model(base.__name__, __base__=base, __doc__=inspect.getdoc(module), **arguments),
    )


# Base of an objective that adds to another one, unless the recipe names it.
BASE: Final = "infonce"
ENTRY_POINTS: Final = "recoquest.objectives"
_OWN: Final[Mapping[str, str]] = {
    "byol": "two_views:BYOL",
    "contrastive_binary": "contrastive_binary:ContrastiveBinary",
    "ifm": "ifm:IFM",
    "infonce": "infonce:InfoNCE",
    "labels": "labels:Labels",
    "local_uniformity": "local_uniformity:LocalUniformity",
    "lovt": "lovt:LoVT",
    "ltd": "ltd:LTD",
    "orthogonality": "reco:Orthogonality",
    "pixpro": "two_views:PixPro",
    "quest": "quest:QUEST",
    "reco": "reco:ReCo",
    "sigmoid": "sigmoid:Sigmoid",
    "simclr": "two_views:SimCLR",
    "sum": "composed:WeightedSum",
    "vse": "vse:VSE",
}


@cache
def _classes() -> Mapping[str, str]:
    """Where the class of every named objective is; an entry point can't replace one of this project."""
    others = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    own = {name: f"{__package__}.{path}" for name, path in _OWN.items()}
    return dict(sorted((others | own).items()))


def objective_names() -> list[str]:
    """Return the names that a recipe can give: this project's, and entry points `recoquest.objectives`."""
    return list(_classes())


def objective_settings(name: str) -> type[ObjectiveConfig]:
    """Return the settings class of a named objective, or of a class `module:Class`.

    Raises:
        ValueError: There is no such objective, or its class can't be used; the message says why.
    """
    if name == "given":
        return GivenObjective
    path = _classes().get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise ValueError(
            f"{name!r} is not an objective; there are {', '.join(objective_names())}, and your own as "
            "module:Class"
        )
    try:
        named: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path} can't be imported: {error}") from None
    is_module = isinstance(named, type) and issubclass(named, nn.Module)
    if not is_module:
        raise ValueError(f"{path} is not a class of torch.nn.Module")
    return settings_of(named, name)


def parse_objective(value: object) -> ObjectiveConfig:
    """Return the settings that a recipe describes: a name, or a mapping with a `name` or with `sum`.

    Raises:
        ValueError: The name is missing or unknown, or (pydantic's own) a setting is wrong.
    """
    if isinstance(value, ObjectiveConfig):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, Mapping) and "sum" in value:
        value = _expanded(value)
    if not isinstance(value, Mapping):
        raise ValueError("an objective is a name or a mapping with a name, such as {name: reco}")
    if value.get("name") is None:
        raise ValueError(f"name is missing; there are {', '.join(objective_names())}")
    return objective_settings(str(value["name"])).model_validate(value)


ObjectiveSettings = Annotated[SerializeAsAny[ObjectiveConfig], BeforeValidator(parse_objective)]


def _expanded(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return `{sum: [infonce, {reco: {...}, weight: .1}]}` as settings of the objective `sum`."""
    rest = {key: other for key, other in value.items() if key != "sum"}
    if not isinstance(value["sum"], list):
        raise ValueError("sum holds a list of objectives, such as [infonce, {reco: {}, weight: 0.1}]")
    objectives, weights = [], []
    for part in value["sum"]:
        entry = {"name": part} if isinstance(part, str) else dict(part) if isinstance(part, Mapping) else {}
        weights.append(entry.pop("weight", 1.0))
        if "name" not in entry:
            settings = next(iter(entry.values()), None) or {}
            if len(entry) != 1 or not isinstance(settings, Mapping):
                raise ValueError(f"{part!r} is no part of a sum: write {{reco: {{}}, weight: 0.1}}")
            entry = {"name": next(iter(entry)), **settings}
        objectives.append(entry)
    return {"name": "sum", "objectives": objectives, "weights": weights, **rest}


def explained(error: ValidationError) -> str:
    """Return what is wrong with the arguments of a class, in one sentence."""
    mistakes = []
    for item in error.errors():
        setting, message = ".".join(map(str, item["loc"])), str(item["msg"]).removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        mistakes.append(f"{setting}: {message}, not {item['input']!r}" if setting else message)
    return "; ".join(mistakes)


def _arguments(module: type[nn.Module]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a class by name, without `self`, `*args` and `**options`."""
    some = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = list(inspect.signature(module.__init__).parameters.values())[1:]
    return {parameter.name: parameter for parameter in parameters if parameter.kind in some}


@cache
def _arguments_for_objectives(module: Any) -> frozenset[str]:
    """Return the names of the arguments that are objectives."""
    hints = get_type_hints(module.__init__, include_extras=True)
    return frozenset(name for name in _arguments(module) if _takes_objectives(hints.get(name)))


def _takes_objectives(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, Objective)) or any(
        map(_takes_objectives, get_args(hint))
    )


def _parts_in(value: Any, kind: type = ObjectiveConfig) -> list[Any]:
    """Return the objectives, or their settings, that an argument is or contains."""
    values = value if isinstance(value, tuple | list) else [value]
    return [one for one in values if isinstance(one, kind)]


def _as_settings(value: Any) -> Any:
    """Return an argument, with default settings instead of objectives, which checked their own."""
    if isinstance(value, nn.Module):
        return BASE
    return [BASE] * len(value) if _parts_in(value, nn.Module) else value


def _check_batch(image: Tensor, text: Tensor, positive_mask: Tensor | None) -> None:
    """Check that two batches of embeddings and the mask of their pairs fit each other.

    Raises:
        ValueError: They don't.
    """
    if not (isinstance(image, Tensor) and isinstance(text, Tensor)):
        kinds = f"{type(image).__name__} and {type(text).__name__}"
        raise ValueError(
            f"The embeddings are {kinds}: give two torch.Tensor, such as torch.as_tensor(image)."
        )
    if image.shape != text.shape or image.ndim not in (2, 3):
        raise ValueError(
            f"Image embeddings {tuple(image.shape)} and text embeddings {tuple(text.shape)} must have one "
            "shape (B, D), or (B, k, D) for k-blades: row i of both is a pair."
        )
    if not len(image):
        raise ValueError("The batch is empty: give one pair of an image and a text, or more.")
    if positive_mask is None:
        return
    size = len(image) * process_count()
    if positive_mask.dtype != torch.bool:
        raise ValueError(f"positive_mask is {positive_mask.dtype} and has to be torch.bool: write mask > 0.")
    if positive_mask.shape != (size, size):
        raise ValueError(
            f"positive_mask is {tuple(positive_mask.shape)}, and a batch of {size} pairs takes "
            f"({size}, {size}): row i is of image i, column j of text j."
        )
