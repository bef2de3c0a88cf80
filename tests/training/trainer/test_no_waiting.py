"""No step waits for its device: towers, heads, other work, and the steps of whole runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.models.tiny import (
    AUDIO,
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    tiny_config,
    tiny_model,
    tiny_spectrograms,
    tiny_tokenizer,
)
from tests.training.objectives.cases import cases
from tests.training.steps import run_steps
from tests.training.trainer.test_every_objective import recipe_of
from tests.training.waiting import nothing_waits
from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.dual_encoder import build_dual_encoder
from training.models.preprocessing import Preprocessing
from training.papers.reclaim import Critic
from training.trainer.batches import Inputs, PixelPreparation
from training.trainer.optimisation.gradients import gradient_norm
from training.trainer.run import train
from training.trainer.setup import ObjectiveResources

TEXTS = ("A dog runs. It barks.", "Two people.", "A red car and a dog.", "The end. No. Yes.")
NORMED = {"kind": "mlp", "hidden": 6, "norm": True}
OPTIONS: dict[str, Any] = {"word_width": 5, "width": 8}
SOUNDS: dict[str, dict[str, Any]] = {
    "audio_cnn": AUDIO,
    "audio_spectrogram_transformer": {
        "architecture": "audio_spectrogram_transformer",
        "options": {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_length": 40,
            "num_mel_bins": 20,
        },
    },
}
GRU: dict[str, Any] = {"architecture": "gru", "options": OPTIONS, "pooling": "eos"}
KINDS: dict[str, dict[str, Any]] = {
    **{
        f"image {name}": {"image": {"architecture": name, "options": options}, "text": GRU}
        for name, options in IMAGE_OPTIONS.items()
    },
    **{
        f"text {name}": {"text": {"architecture": name, "options": options, "pooling": "mean"}}
        for name, options in TEXT_OPTIONS.items()
    },
    "one way": {"text": GRU},
    "both ways": {"text": GRU | {"options": OPTIONS | {"bidirectional": True}, "pooling": "mean"}},
    "batch norm over regions and sentences": {
        "image": {"pooling": "mean", "head": NORMED},
        "text": GRU | {"pooling": "attention", "head": NORMED},
        "local_features": True,
        "share_local_head": True,
    },
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_images_and_texts_are_encoded_and_learned_from(kind: str, device: torch.device) -> None:
    settings = KINDS[kind]
    image = {"architecture": "resnet", "options": IMAGE_OPTIONS["resnet"]} | settings.get("image", {})
    config = DualEncoderConfig.model_validate({"dim": 6} | settings | {"image": image})
    tokenizer = tiny_tokenizer()
    model = build_dual_encoder(config, tokenizer, load_pretrained=False).train().to(device)
    sentences = {"image": {"size": 32}, "text": {"sentences": config.local_features}}
    preprocessing = Preprocessing(PreprocessingConfig.model_validate(sentences), tokenizer)
    changes = AugmentationConfig(
        flip=0.5, rotation=10, crop_scale=(0.5, 1.0), brightness=0.2, contrast=0.2, blur_kernel=3
    )
    prepare = PixelPreparation(preprocessing.image, Augmentation(changes, seed=0))
    images = torch.zeros(len(TEXTS), 3, 32, 32, dtype=torch.uint8)
    places = torch.arange(len(TEXTS))
    batch = Inputs(places, len(TEXTS), images, preprocessing.text(TEXTS))
    with nothing_waits(device):
        inputs = batch.to(device)
        features = model(prepare(inputs, step=3), inputs.tokens)
        parts = [features["image"].embedding, features["text"].embedding]
        parts += [local for name in ("image", "text") if (local := features[name].local) is not None]
        torch.autograd.backward(torch.stack([part.square().sum() for part in parts]).sum())
        frames = prepare.frames(inputs, step=3)
        parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, gradient_norm(parameters))
    assert frames.device == device


@pytest.mark.parametrize("architecture", sorted(SOUNDS))
def test_sounds_are_encoded_and_learned_from(architecture: str, device: torch.device) -> None:
    model = tiny_model(tiny_config(audio=SOUNDS[architecture])).train().to(device)
    spectrograms = tiny_spectrograms()
    with nothing_waits(device):
        embedding = model.encode_audio(spectrograms.to(device)).embedding
        torch.autograd.backward(embedding.square().sum())


# Of every sort of what an objective keeps and needs are quick; `test_devices` sees the losses of all.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in cases()},
    "in chunks": ("infonce", {"chunk_size": 2}),
    "averaged weights": ("infonce", {"ema_decay": 0.9}),
    "gradients of any length": ("infonce", {"optimizer": {"max_grad_norm": None}}),
}
_SLOW = frozenset(cases()) - {"infonce", "byol", "ltd-dual"}


@pytest.fixture
def made_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use zeros as targets: a new text is embedded in the thread that prepares batches."""

    def zeros(resources: ObjectiveResources, texts: Sequence[str]) -> Tensor:
        assert resources.sentences is not None
        return torch.zeros(len(texts), resources.sentences.dim)

    monkeypatch.setattr(ObjectiveResources, "targets", zeros)


@pytest.mark.usefixtures("made_targets")
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.slow) if name in _SLOW else name for name in CASES]
)
def test_no_step_of_a_run_waits(
    case: str,
    device: torch.device,
    scenes: Path,
    sentence_encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the drawing of a batch to what follows the optimizer; batches are encoded at once."""
    kind, settings = CASES[case]
    recipe = recipe_of(kind, sentence_encoder, "fp32", **{"chunk_size": None} | settings)
    run_steps(
        lambda name: train(recipe, scenes, tmp_path / "run", device=name, show_progress=False),
        device,
        monkeypatch,
    )


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of the operations that were run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


def test_a_critic_is_normalised_without_a_solver() -> None:
    """On meta, solvers have no errors to look for; those of LAPACK are known by their names."""
    critic = Critic(7, 5).to("meta")
    with Operations() as operations:
        scores = critic(torch.zeros(4, 7, device="meta"), torch.zeros(4, 5, device="meta"))
        torch.autograd.backward(scores.sum())
    assert not [name for name in operations.names if "linalg" in name and "power" not in name]
