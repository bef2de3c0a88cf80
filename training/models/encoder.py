"""The trained encoder: turns images, texts and sounds into vectors."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from training.common.errors import BundleError, RecipeError
from training.models.blades import orthonormal
from training.models.bundle import WEIGHTS_FILE, BundleInfo, read_bundle, read_tokenizer
from training.models.config import Modality, PairAttentionConfig
from training.models.dual_encoder import DualEncoder, build_dual_encoder
from training.models.features import ModalityFeatures
from training.models.image_input import ImageInput, Pixels
from training.models.image_towers import ImageTower, build_image_tower
from training.models.pair_attention import pair_similarities
from training.models.preprocessing import Preprocessing, TokenBatch, pad_spectrograms
from training.models.text_input import TextEmbeddings


class Encoder(ImageInput):
    """Embeds images, texts and sounds with a trained dual encoder.

    Vectors have unit length and are compared by their inner product. The vector of a k-blade model is an
    orthonormal basis, k unit vectors one after another, of length sqrt(k) as a whole: the cosine of two
    blades is the determinant of the k x k inner products of one's vectors with the other's. Vectors
    without a sign, such as QUEST's normals, are compared by the absolute value of the inner product.

    Attributes:
        fixed_threads: Whether every pass uses the same number of threads.
        in_bfloat16: Whether towers compute in bfloat16; vectors are always float32.
        dim: Width of the vectors.
        blades: k of a k-blade model (a vector is k vectors of `dim / k` numbers); otherwise 1.
        unsigned: Whether a vector and its opposite are the same.
        regions: Whether the vector of an image is the mean of embeddings of its regions.
        info: The bundle it was loaded from; None for a model in training.
    """

    fixed_threads: Final = False

    def __init__(
        self,
        model: DualEncoder,
        preprocessing: Preprocessing,
        device: torch.device | str = "cpu",
        *,
        info: BundleInfo | None = None,
        in_bfloat16: bool = False,
    ) -> None:
        model.check_preprocessing(preprocessing.config)
        self.device = torch.device(device)
        self.in_bfloat16 = in_bfloat16
        self.dim = model.config.vector_dim
        self.blades = model.config.blades
        self.unsigned = model.config.unsigned
        self.regions = model.config.regions
        self.modalities = model.modalities
        self.info = info
        self.preprocessing = preprocessing
        self.image_config = preprocessing.image.config
        self.model = model.to(self.device)

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S)."""
        with self._evaluation():
            return _vectors(self._image_features(images).embedding)

    def embed_texts(self, texts: Sequence[str | Sequence[str]]) -> TextEmbeddings:
        """Vectors (B, D) of texts, each whole or as its sentences; those over the limit of tokens are cut.

        Raises:
            MissingModalityError: The model was trained without texts.
        """
        batch = self.preprocessing.text(texts)
        with self._evaluation():
            vectors = _vectors(self._text_features(batch, texts).embedding)
        return TextEmbeddings(vectors, batch.truncations, tuple(batch.attention_mask.sum(dim=1).tolist()))

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images (B, 3, S, S); requires `regions`.

        They aren't normalised: their mean points in the direction of the image's vector. Regions are the
        squares of a grid, row by row.
        """
        with self._evaluation():
            features = self.model.encode_image(self._normalised(images), regions=True)
            assert features.regions is not None
            regions: NDArray[np.float32] = features.regions.float().cpu().numpy()
        return regions

    @property
    def pair_attention(self) -> PairAttentionConfig | None:
        """How images and texts are compared pair by pair; None: by their vectors."""
        return self.model.config.pair_attention

    def image_entries(self, images: Pixels) -> list[Tensor]:
        """The regions (K, D) of each prepared image of (B, 3, S, S), for `compare`."""
        with self._evaluation():
            return _entries(self._image_features(images))

    def text_entries(self, texts: Sequence[str]) -> list[Tensor]:
        """The words (T_i, D) of each text, for `compare`."""
        with self._evaluation():
            return _entries(self.model.encode_text(self.preprocessing.text(texts).to(self.device)))

    def compare(self, images: Sequence[Tensor], texts: Sequence[Tensor]) -> NDArray[np.float32]:
        """Similarity (N, M) of N images and M texts, pair by pair.

        Raises:
            RecipeError: The model compares vectors.
        """
        if self.pair_attention is None:
            raise RecipeError("This encoder compares images and texts by their vectors.")
        regions, words = _padded(images, self.device), _padded(texts, self.device)
        with torch.inference_mode():
            similarities = pair_similarities(*regions, *words, self.pair_attention)
        scores: NDArray[np.float32] = similarities.cpu().numpy()
        return scores

    def _image_features(self, images: Pixels) -> ModalityFeatures:
        return self.model.encode_image(self._normalised(images))

    def _text_features(self, batch: TokenBatch, _texts: Sequence[str | Sequence[str]]) -> ModalityFeatures:
        return self.model.encode_text(batch.to(self.device))

    def _normalised(self, images: Pixels) -> Tensor:
        preprocessing = self.preprocessing.image
        return preprocessing.normalise(preprocessing.to_unit(torch.from_numpy(images).to(self.device)))

    def embed_audio(self, spectrograms: Sequence[Tensor]) -> NDArray[np.float32]:
        """Vectors (B, D) of sounds, each a spectrogram (M, T_i) of `preprocessing.audio`.

        Raises:
            MissingModalityError: The model was trained without sounds.
        """
        batch = pad_spectrograms(spectrograms)
        with self._evaluation():
            return _vectors(self.model.encode_audio(batch.to(self.device)).embedding)

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Evaluation mode without gradients; restores training mode afterwards."""
        training = self.model.training
        if training:
            self.model.eval()
        try:
            with (
                torch.inference_mode(),
                torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_bfloat16),
            ):
                yield
        finally:
            if training:
                self.model.train()


def _vectors(embedding: Tensor) -> NDArray[np.float32]:
    """Unit vectors of embeddings (B, D), or flattened orthonormal bases of k-blades (B, k, D)."""
    full = embedding.float()
    rows = orthonormal(full).flatten(1) if full.ndim == 3 else functional.normalize(full, dim=-1)
    vectors: NDArray[np.float32] = rows.cpu().numpy()
    return vectors


def _entries(features: ModalityFeatures) -> list[Tensor]:
    """The real local features (K_i, D) of each item, on the CPU."""
    assert features.local is not None
    assert features.local_mask is not None
    local = features.local.float().cpu()
    return [entries[real] for entries, real in zip(local, features.local_mask.cpu(), strict=True)]


def _padded(items: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Padded entries (N, K, D) of items and their mask (N, K), on a device."""
    lengths = torch.tensor([len(entries) for entries in items])
    mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    return pad_sequence(list(items), batch_first=True).to(device), mask.to(device)


def load_encoder(
    folder: Path | str, device: str = "auto", *, for_pairs: bool = False, only: Modality | None = None
) -> Encoder:
    """Load a bundle, without network access or the pretrained models it was trained from.

    Args:
        folder: The bundle.
        device: A torch device; "auto": the GPU if there is one, otherwise the CPU. On GPUs that support
            bfloat16, towers compute in it.
        for_pairs: Also accept an encoder that compares pairs instead of vectors.
        only: Load only the tower of this modality; None: all.

    Raises:
        BundleError: The bundle is missing, damaged or of a newer release, or compares pairs.
        RecipeError: There is no such device.
    """
    info = read_bundle(folder)
    if info.config.pair_attention is not None and not for_pairs:
        raise BundleError(
            f"{folder} compares images and texts pair by pair and gives no vectors to search by: measure it "
            "with `recoquest evaluate`, or use a bundle of another objective than scan."
        )
    model, preprocessing = load_trainable(info, only=only)
    model.drop_unused_branches()
    chosen = choose_device(device)
    return Encoder(
        model.eval().requires_grad_(False), preprocessing, chosen, info=info, in_bfloat16=has_bfloat16(chosen)
    )


def load_trainable(info: BundleInfo, *, only: Modality | None = None) -> tuple[DualEncoder, Preprocessing]:
    """A bundle's trainable model on the CPU, or its tower of one modality, and its preprocessing.

    Raises:
        BundleError: The weights don't match the bundle's settings.
    """
    tokenizer = read_tokenizer(info)
    model = build_dual_encoder(info.config, tokenizer, load_pretrained=False, only=only)
    try:
        model.load_state_dict(_read_weights(info.folder, None if only is None else model.state_dict()))
    except (SafetensorError, RuntimeError) as error:
        raise _do_not_fit(info.folder, error) from error
    return model, Preprocessing(info.preprocessing, tokenizer)


def load_image_tower(folder: Path | str) -> tuple[ImageTower, BundleInfo]:
    """A bundle's image tower with pooling but without head, on the CPU and fully trainable.

    Raises:
        BundleError: The bundle is missing, damaged or of a newer release.
    """
    info = read_bundle(folder)
    tower = build_image_tower(
        info.config.image.model_copy(update={"frozen_layers": 0}), load_pretrained=False
    )
    try:
        weights = _read_weights(info.folder, {f"image.{name}" for name in tower.state_dict()})
        tower.load_state_dict({name.removeprefix("image."): weight for name, weight in weights.items()})
    except (SafetensorError, RuntimeError) as error:
        raise _do_not_fit(info.folder, error) from error
    return tower, info


def _read_weights(folder: Path, names: Container[str] | None) -> dict[str, Tensor]:
    """A bundle's weights of these names; None: all."""
    with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
        stored = file.keys()
        return {name: file.get_tensor(name) for name in stored if names is None or name in names}


def _do_not_fit(folder: Path, error: Exception) -> BundleError:
    return BundleError(f"The weights of {folder} do not fit its config.json: make it again. ({error})")


def choose_device(name: str) -> torch.device:
    """The torch device of that name; "auto" is the GPU if there is one, otherwise the CPU.

    Raises:
        RecipeError: There is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"There is no device {name!r} here: choose 'auto', 'cpu' or 'cuda'.") from error
    return device


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device is a GPU with bfloat16; emulated, as before Ampere, it is slower than float32."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
