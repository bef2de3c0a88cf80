"""Typed settings of the encoders and of their preprocessing; stored in every bundle."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from training.common.frozen import Frozen
from training.imaging.resizing import Filter, Resize, Rounding, Square

ImageArchitecture = Literal[
    "clip_resnet",
    "clip_vision_model",
    "convnext",
    "dinov2",
    "dinov2_with_registers",
    "dinov3_vit",
    "efficientnet",
    "mobilenet_v2",
    "resnet",
    "siglip_vision_model",
    "vit",
]
# Pooled output of these towers is the mean of their map.
_POOLED_BY_MEAN: Final = frozenset({"efficientnet", "mobilenet_v2", "resnet"})
TextArchitecture = Literal[
    "altclip_text_model",
    "bert",
    "clip_text_model",
    "distilbert",
    "gru",
    "roberta",
    "siglip_text_model",
    "small_transformer",
    "text_cnn",
]
AudioArchitecture = Literal["audio_cnn", "audio_spectrogram_transformer"]
Modality = Literal["image", "text", "audio"]
Retrieval = Literal["shared", "unique", "concat", "normal"]


class HeadConfig(Frozen):
    """Projection from a tower's width to the embedding.

    `linear` is one layer; `mlp` is two layers with an activation between them, and with a batch norm before
    it where `norm` is set (LoVT: hidden 2048, norm); `identity` is none, and the embedding is as wide as the
    tower.
    """

    kind: Literal["linear", "mlp", "identity"] = "linear"
    hidden: int | None = Field(
        default=None, gt=0, description="Width of the hidden layer; None: the output's."
    )
    dropout: float = Field(default=0.0, ge=0, lt=1)
    norm: bool = Field(default=False, description="Batch norm before the activation of `mlp`.")
    activation: Literal["relu", "gelu"] = Field(default="relu", description="Activation of `mlp`.")

    @model_validator(mode="after")
    def _norm_fits(self) -> Self:
        if self.norm and self.kind != "mlp":
            raise ValueError(
                f"a head of kind {self.kind} has no batch norm: set kind to mlp, or norm to false"
            )
        return self


class BranchesConfig(Frozen):
    """QUEST's two decoders for each modality, one for shared and one for unique information.

    The shared decoder is the rest of the tower with its pooling and head. The unique one leaves a tower of
    transformer layers after layer `fork_after`, for layers, a pooling and a head of its own; in any other
    tower it is a second head on the pooled feature.
    """

    kind: Literal["transformer", "mlp"] = Field(
        default="transformer",
        description="`transformer`: fork the towers that are made of transformer layers; `mlp`: fork none.",
    )
    layers: int = Field(default=2, gt=0, description="Transformer layers of the unique decoder.")
    fork_after: int | None = Field(
        default=None,
        gt=0,
        description="Layer after which the unique branch leaves; None: three quarters of the tower, 9 of 12.",
    )

    @model_validator(mode="after")
    def _only_a_transformer_forks(self) -> Self:
        if self.kind == "mlp" and self.fork_after is not None:
            raise ValueError(
                "branches of kind mlp begin at the pooled feature: remove fork_after, or set kind to "
                "transformer"
            )
        return self


class TowerConfig(Frozen):
    """What the image and the text tower have in common."""

    pretrained: str | None = Field(
        default=None,
        description="Local folder or hub name of pretrained weights, or for resnet a .safetensors or .pth "
        "file with torchvision's names; None: random weights.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the architecture when it is built with random weights."
    )
    frozen_layers: Annotated[int, Field(ge=0)] | Literal["all"] = Field(
        default=0, description="Embeddings (or stem) and this many first layers keep their weights."
    )
    head: HeadConfig = HeadConfig()


class ImageTowerConfig(TowerConfig):
    """An image encoder of transformers, or CLIP's ResNet, with its pooling and head."""

    architecture: ImageArchitecture
    pooling: Literal["tower", "cls", "mean", "max", "attention"] = Field(
        default="tower", description="`tower` takes the architecture's own pooled output."
    )


class TextTowerConfig(TowerConfig):
    """A text encoder with its pooling over real tokens and its head."""

    architecture: TextArchitecture
    pooling: Literal["cls", "eos", "mean", "max", "attention"] = "mean"
    vocabulary_size: int = Field(
        default=8192,
        ge=300,
        description="Upper bound for the tokenizer learned from the train split when none is pretrained.",
    )
    vocabulary: Literal["auto", "pieces", "words"] = Field(
        default="auto",
        description="What a learned tokenizer tells apart: pieces of words, or whole words, of which one "
        "stands for all unknown; auto: words for gru and text_cnn, else pieces.",
    )
    min_word_count: int = Field(
        default=1, gt=0, description="A word that occurs less often in the train split is an unknown one."
    )


class AudioTowerConfig(TowerConfig):
    """An encoder of log-mel spectrograms with its pooling over real frames and its head."""

    architecture: AudioArchitecture
    pooling: Literal["tower", "mean", "max", "attention"] = Field(
        default="tower", description="`tower` takes the architecture's own pooled output."
    )


class PairAttentionConfig(Frozen):
    """SCAN's comparison of an image and a text by regions and words, instead of their vectors."""

    queries: Literal["words", "regions"] = Field(
        default="words", description="What looks at the entries of the other side (SCAN t-i, or i-t)."
    )
    sharpness: float = Field(
        default=9.0, gt=0, description="Sharpness of the softmax over entries (lambda 1)."
    )
    pooling: Literal["logsumexp", "mean"] = Field(
        default="logsumexp", description="Over what the queries find (SCAN LSE, or AVG)."
    )
    pooling_sharpness: float = Field(default=6.0, gt=0, description="Sharpness of `logsumexp` (lambda 2).")


class DualEncoderConfig(Frozen):
    """An image encoder, alone or with others of texts and of sounds, in one space of `dim` numbers."""

    image: ImageTowerConfig
    text: TextTowerConfig | None = None
    audio: AudioTowerConfig | None = None
    dim: int = Field(default=512, gt=0)
    local_features: bool = Field(
        default=False, description="Also return regions and tokens (or sentences), projected to `dim`."
    )
    local_head: HeadConfig | None = Field(
        default=None, description="Head of the local features; None: one like the tower's."
    )
    share_local_head: bool = Field(
        default=False,
        description="Local features go through the head of the global one, in each modality; a batch norm in "
        "it keeps statistics of either.",
    )
    blades: int = Field(
        default=1, gt=0, le=4, description="An embedding is this many vectors, which span a k-blade (ReCo)."
    )
    pair_attention: PairAttentionConfig | None = Field(
        default=None, description="Images and texts are compared by this alone; no index can hold them."
    )
    concepts: int | None = Field(
        default=None,
        gt=0,
        description="The embedding of an image fuses so many words, which its tower predicts, with its "
        "pooled feature (SCO); None: it is that of image.head.",
    )
    branches: BranchesConfig | None = None
    retrieval: Retrieval = Field(
        default="shared", description="What is searched by where there are branches."
    )

    @property
    def modalities(self) -> frozenset[Modality]:
        """Modalities that have a tower."""
        towers: dict[Modality, object] = {"image": self.image, "text": self.text, "audio": self.audio}
        return frozenset(name for name, tower in towers.items() if tower is not None)

    @property
    def vector_dim(self) -> int:
        """How many numbers the vector of an image or a text has."""
        match self.retrieval:
            case "concat":
                return 2 * self.dim
            case "normal":
                return self.dim - self.dim % 3
            case _:
                return self.blades * self.dim

    @property
    def unsigned(self) -> bool:
        """Whether a vector and its opposite are the same: the sign of a normal is free."""
        return self.retrieval == "normal"

    @property
    def regions(self) -> bool:
        """True if the embedding of an image is the mean of embeddings of its regions.

        Then the head is linear and the pooling is a mean over a map or patches. Under attention pooling or a
        class token, maps of single regions point elsewhere than the objects searched for (measured).
        """
        means = ("mean", "tower") if self.image.architecture in _POOLED_BY_MEAN else ("mean",)
        linear = self.image.head.kind != "mlp" and self.concepts is None
        compares = self.blades == 1 and self.retrieval == "shared" and self.pair_attention is None
        return self.image.pooling in means and linear and compares

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        blades, branches, local = self.blades > 1, self.branches is not None, self.local_features
        own_local_head, shared_local_head = self.local_head is not None, self.share_local_head
        wrong = {
            f"{self.blades} vectors of {self.dim} numbers span no subspaces that can be told apart: set "
            f"dim to {self.blades + 1} or more, or blades to less": blades and self.blades >= self.dim,
            f"retrieval by {self.retrieval!r} needs branches: add branches, or set retrieval to shared": (
                self.retrieval != "shared" and not branches
            ),
            "branches give no blades: set blades to 1, or remove branches": branches and blades,
            "the normal of two branches needs three numbers: set dim to 3 or more": branches and self.dim < 3,
            "concepts make the head of images: set blades to 1, and remove image.head": (
                self.concepts is not None and (blades or self.image.head != HeadConfig())
            ),
            "pair_attention compares regions with words: set local_features to true, and add a text tower": (
                self.pair_attention is not None and not (local and self.text is not None)
            ),
            "a local head needs local features: set local_features to true": (
                not local and (own_local_head or shared_local_head)
            ),
            "a shared local head is the global one: remove local_head or share_local_head": (
                shared_local_head and own_local_head
            ),
            "local features are no blades: set blades to 1, or share_local_head to false": (
                shared_local_head and blades
            ),
        }
        for message, holds in wrong.items():
            if holds:
                raise ValueError(message)
        return self


class ImagePreprocessingConfig(Frozen):
    """How a decoded RGB image becomes a square float tensor."""

    size: int = Field(default=224, gt=0)
    resize: Resize = Field(
        default="crop",
        description="Centre crop, resized; `shortest_edge`: the same in whole pixels, resized first "
        "(transformers); stretch; or long side to size and pad.",
    )
    resize_to: int | None = Field(
        default=None,
        gt=0,
        description="Pixels of the short side before a crop, of which the centre crop keeps `size` "
        "(VSE++: 256 and 224); None: `size`. Training with random crops takes these from the whole square.",
    )
    filter: Filter = Field(default="bicubic", description="Filter that resizes, antialiased.")
    rounding: Rounding = Field(
        default="down",
        description="Where the crop of `shortest_edge` begins if half a pixel is left; down as in "
        "transformers, or even as in torchvision.",
    )
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    scaled_decoding: bool = Field(
        default=False,
        description="Decode a JPEG file at 1/2, 1/4 or 1/8 of its size where both sides keep a quarter more "
        "than `size` pixels. Recipes set it; bundles made before there was a choice decode every file whole.",
    )

    @property
    def square(self) -> Square:
        """How an image becomes square."""
        return Square(self.size, self.resize, self.resize_to, self.filter, self.rounding)

    @property
    def min_side(self) -> int | None:
        """How many pixels both sides of a decoded image need; None: all that there are."""
        # Vectors of photographs then keep a cosine of .998 with those of whole files.
        return 5 * (self.resize_to or self.size) // 4 if self.scaled_decoding else None

    @model_validator(mode="after")
    def _crop_has_a_margin(self) -> Self:
        crops = self.resize in ("crop", "shortest_edge")
        if self.resize_to is not None and (not crops or self.resize_to < self.size):
            raise ValueError("resize_to is for resize: crop or shortest_edge, and at least size")
        return self


class TextPreprocessingConfig(Frozen):
    """How a text becomes token ids."""

    max_tokens: int = Field(default=64, gt=2, description="Special tokens included; longer texts are cut.")
    sentences: bool = Field(
        default=False, description="Local features of a text are its sentences, not its tokens (LoVT)."
    )


class AudioPreprocessingConfig(Frozen):
    """How a sound becomes a log-mel spectrogram; the defaults are those of AST (Gong et al. 2021)."""

    sample_rate: int = Field(default=16_000, ge=1_000, le=192_000, description="Sounds are resampled to it.")
    seconds: float = Field(default=10.24, gt=0, le=600, description="Longer sounds are cut behind this.")
    window: int = Field(default=400, gt=1, description="Samples of a frame.")
    hop: int = Field(default=160, gt=0, description="Samples from one frame to the next.")
    n_fft: int = Field(
        default=512, gt=1, description="Samples of the Fourier transform, at least the window."
    )
    mels: int = Field(default=128, gt=0, description="Mel bands.")
    min_frequency: float = Field(default=20.0, ge=0, description="Lower end of the bands, in hertz.")
    max_frequency: float | None = Field(
        default=None, gt=0, description="Upper end of the bands; None: half the sample rate."
    )
    preemphasis: float = Field(default=0.97, ge=0, lt=1, description="0: none.")
    mean: float = Field(default=-4.2677393, description="Subtracted from the log of the bands.")
    std: float = Field(default=9.1379948, gt=0, description="Divides what is left.")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.n_fft < self.window:
            raise ValueError("n_fft is at least the window")
        if self.window > self.seconds * self.sample_rate:
            raise ValueError("the window is longer than the sounds may be")
        if not self.min_frequency < (self.max_frequency or self.sample_rate / 2) <= self.sample_rate / 2:
            raise ValueError("the bands go from a lower to a higher frequency, at most half the sample rate")
        return self


class PreprocessingConfig(Frozen):
    """One object for the trainer, the bulk embedder and the service."""

    image: ImagePreprocessingConfig = ImagePreprocessingConfig()
    text: TextPreprocessingConfig = TextPreprocessingConfig()
    audio: AudioPreprocessingConfig = AudioPreprocessingConfig()
