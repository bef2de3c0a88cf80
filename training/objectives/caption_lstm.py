"""Caption-LSTM: an LSTM that attends to the regions of an image writes its text."""

from typing import Literal

import torch
from torch import Tensor, nn

from training.objectives.base import ObjectiveContext
from training.objectives.captions import CaptionConfig, Captioning
from training.objectives.local_entries import LocalEntries


class CaptionLSTMSettings(CaptionConfig):
    """The decoder's size."""

    name: Literal["caption_lstm"] = "caption_lstm"

    def build(self, context: ObjectiveContext) -> "CaptionLSTM":
        """The objective with these settings.

        Raises:
            RecipeError: There are no captions.
        """
        return CaptionLSTM(self, context)


class CaptionLSTM(Captioning):
    """Soft attention of Show, Attend and Tell (Xu et al. 2015, equations 1-7 and 13, its gate beta).

    Its penalty on regions that are never looked at (equation 14) is left out.
    """

    def __init__(self, settings: CaptionLSTMSettings, context: ObjectiveContext) -> None:
        super().__init__(settings, context)
        width, dim = settings.width, context.dim
        self.first_state = nn.Linear(dim, width)
        self.first_cell = nn.Linear(dim, width)
        self.of_region = nn.Linear(dim, width)
        self.of_state = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.gate = nn.Linear(width, 1)
        self.cell = nn.LSTMCell(width + dim, width)
        self.state_out = nn.Linear(width, width, bias=False)
        self.region_out = nn.Linear(dim, width, bias=False)

    def states(self, regions: LocalEntries, words: Tensor) -> Tensor:
        """What is known before each next word, from the word before, the state and what was looked at."""
        kept = regions.mask.unsqueeze(2)
        mean = regions.values.sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        hidden, cell = torch.tanh(self.first_state(mean)), torch.tanh(self.first_cell(mean))
        keys = self.of_region(regions.values)
        known = []
        for word in words.unbind(dim=1):
            scores = self.score(torch.tanh(keys + self.of_state(hidden).unsqueeze(1)))
            weights = scores.masked_fill(~kept, torch.finfo(scores.dtype).min).softmax(dim=1)
            seen = torch.sigmoid(self.gate(hidden)) * (weights * regions.values).sum(dim=1)
            hidden, cell = self.cell(torch.cat((word, seen), dim=1), (hidden, cell))
            known.append(word + self.state_out(hidden) + self.region_out(seen))
        return torch.stack(known, dim=1)
