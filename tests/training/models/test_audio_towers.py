from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ASTConfig, ASTForAudioClassification

from training.common.errors import RecipeError
from training.models.audio_towers import AudioTower, build_audio_tower, check_spectrograms
from training.models.config import AudioArchitecture, AudioPreprocessingConfig, AudioTowerConfig
from training.models.preprocessing import SpectrogramBatch, pad_spectrograms

MELS = 16
OPTIONS: dict[AudioArchitecture, dict[str, Any]] = {
    "audio_cnn": {"mels": MELS, "width": 16, "layers": 4},
    "audio_spectrogram_transformer": {
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_mel_bins": MELS,
        "max_length": 40,
        "patch_size": 8,
        "time_stride": 4,
        "frequency_stride": 8,
    },
}
ARCHITECTURES = sorted(OPTIONS)
POOLINGS = ("tower", "mean", "max", "attention")
LENGTHS = (40, 17, 1, 8)


def build(architecture: AudioArchitecture, **settings: object) -> AudioTower:
    torch.manual_seed(0)
    content = {"architecture": architecture, "options": OPTIONS[architecture], **settings}
    return build_audio_tower(AudioTowerConfig.model_validate(content), load_pretrained=True)


def sounds(lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(MELS, length, generator=generator) for length in lengths]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_changes_nothing(architecture: AudioArchitecture, pooling: str) -> None:
    tower = build(architecture, pooling=pooling).eval()
    batch = pad_spectrograms(sounds())
    noisy = replace(batch, values=torch.where(batch.mask[:, None], batch.values, float("nan")))
    with torch.no_grad():
        expected = tower(batch)
        alone = torch.cat([tower(pad_spectrograms([sound])).pooled for sound in sounds()])
        changed = tower(noisy)
    assert expected.pooled.shape == (len(LENGTHS), tower.width)
    assert expected.pooled.std(dim=0).max() > 1e-3
    torch.testing.assert_close(alone, expected.pooled, atol=1e-5, rtol=0)
    torch.testing.assert_close(changed.pooled, expected.pooled, atol=1e-6, rtol=0)
    assert expected.local_mask is not None
    assert expected.local_mask.any(dim=1).all()
    assert expected.local_mask.shape == expected.local.shape[:2]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_pitch_and_time_change_the_feature(architecture: AudioArchitecture) -> None:
    tower = build(architecture, pooling="attention").eval()
    sound = sounds((40,))[0]
    batch = pad_spectrograms([sound, sound.flip(0), sound.flip(1)])
    with torch.no_grad():
        first, higher, later = tower(batch).pooled
    assert (first - higher).abs().max() > 1e-4
    assert (first - later).abs().max() > 1e-4


def test_patches_of_ast_are_real_where_they_begin_in_a_real_frame() -> None:
    tower = build("audio_spectrogram_transformer").eval()
    mask = tower(pad_spectrograms(sounds())).local_mask
    assert mask is not None
    # Two rows of nine patches, four frames apart; a sound of 17 frames begins five of each row.
    assert mask.reshape(4, 2, 9).sum(dim=2).tolist() == [[9, 9], [5, 5], [1, 1], [2, 2]]


def test_frames_of_the_convolutions_are_halved_three_times() -> None:
    mask = build("audio_cnn").eval()(pad_spectrograms(sounds())).local_mask
    assert mask is not None
    assert mask.sum(dim=1).tolist() == [5, 3, 1, 1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("frozen", [2, "all"])
def test_frozen_layers_do_not_train(architecture: AudioArchitecture, frozen: int | str) -> None:
    tower = build(architecture, frozen_layers=frozen).train()
    layers = tower.backbone.layers()
    still = [*tower.backbone.stem(), *layers[0], *layers[1], *(layers[2] if frozen == "all" else [])]
    assert not any(parameter.requires_grad for module in still for parameter in module.parameters())
    assert not any(module.training for module in still)
    assert all(p.requires_grad for module in layers[2] for p in module.parameters()) is (frozen != "all")


def test_ast_is_loaded_from_a_folder_and_computes_what_transformers_does(tmp_path: Path) -> None:
    torch.manual_seed(3)
    classifier = ASTForAudioClassification(ASTConfig(**OPTIONS["audio_spectrogram_transformer"]))
    classifier.train(False)
    classifier.save_pretrained(tmp_path)
    model = classifier.audio_spectrogram_transformer
    tower = build("audio_spectrogram_transformer", options={}, pretrained=str(tmp_path)).eval()
    sound = sounds((30,))[0]
    # AST's own feature extractor pads with a log energy of 0 before it normalises.
    padded = torch.nn.functional.pad(sound, (0, 10), value=4.2677393 / (2 * 4.5689974))
    with torch.no_grad():
        expected = model(input_values=padded.T[None])
        actual = tower(pad_spectrograms([sound]))
    torch.testing.assert_close(actual.pooled, expected.pooler_output, atol=1e-5, rtol=0)
    torch.testing.assert_close(actual.local, expected.last_hidden_state[:, 2:], atol=1e-5, rtol=0)
    assert tower.config.pretrained is None


def test_what_does_not_fit_is_named() -> None:
    cnn, ast = build("audio_cnn").backbone, build("audio_spectrogram_transformer").backbone
    with pytest.raises(RecipeError, match=r"16 bands, not 128: set preprocessing\.audio\.mels to 16"):
        check_spectrograms(cnn, AudioPreprocessingConfig())
    check_spectrograms(cnn, AudioPreprocessingConfig(mels=MELS))
    with pytest.raises(RecipeError, match="takes 40 frames, but 1 seconds make 98"):
        check_spectrograms(ast, AudioPreprocessingConfig(mels=MELS, seconds=1))
    with pytest.raises(RecipeError, match="no pretrained weights"):
        build("audio_cnn", pretrained="somewhere")
    with pytest.raises(RecipeError, match="options of audio_cnn do not fit"):
        build("audio_cnn", options={"width": -1})
    with pytest.raises(RecipeError, match="has no option 'mels'"):
        build("audio_spectrogram_transformer", options={"mels": 16})
    with pytest.raises(RecipeError, match="patches are larger"):
        build("audio_spectrogram_transformer", options={"max_length": 10})


def test_a_batch_of_one_frame_sounds_is_finite_in_training() -> None:
    batch = SpectrogramBatch(torch.zeros(3, MELS, 1), torch.ones(3, 1, dtype=torch.bool))
    for architecture in OPTIONS:
        assert build(architecture).train()(batch).pooled.isfinite().all()
