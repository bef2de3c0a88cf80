"""Bilinear attention networks: attention over all pairs of a region and a word (Kim et al. 2018)."""

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

_RANK = 3


def normed_linear(inside: int, outside: int, *, bias: bool = True) -> nn.Module:
    """A linear layer whose weight is a direction and one length."""
    layer: nn.Module = weight_norm(nn.Linear(inside, outside, bias=bias), dim=-1)
    return layer


class _Projection(nn.Sequential):
    """Dropout, a linear layer and ReLU."""

    def __init__(self, inside: int, outside: int, dropout: float) -> None:
        super().__init__(nn.Dropout(dropout), normed_linear(inside, outside), nn.ReLU())


class AttentionMaps(nn.Module):
    """Several maps of weights over pairs, each of a low-rank bilinear form (equation 6)."""

    def __init__(self, regions: int, words: int, glimpses: int, dropout: float, last_dropout: float) -> None:
        super().__init__()
        rank = _RANK * words
        self.region = nn.Sequential(_Projection(regions, rank, dropout), nn.Dropout(last_dropout))
        self.word = _Projection(words, rank, dropout)
        self.form = normed_linear(rank, glimpses, bias=False)

    def forward(self, regions: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """Weights (B, G, R, T) that sum to 1 over pairs; those of padding are 0.

        Args:
            regions: (B, R, C).
            words: (B, T, W).
            mask: (B, T), True where a word is real.
        """
        left = self.region(regions)
        logits = torch.einsum("brk,gk,btk->bgrt", left, self.form.weight, self.word(words))
        logits = logits.masked_fill(~mask[:, None, None, :], -torch.inf)
        return logits.flatten(2).softmax(dim=2).view_as(logits)


class BilinearAttention(nn.Module):
    """Reads regions by words in several glimpses, each added to the words (equations 8 and 9).

    Args:
        regions: C, numbers of a region.
        words: W, numbers of a word and of the result.
        glimpses: G.
        dropout: Dropout rate before each projection.
        last_dropout: Dropout rate of the attention maps' region features.
    """

    def __init__(
        self, regions: int, words: int, glimpses: int, *, dropout: float, last_dropout: float
    ) -> None:
        super().__init__()
        self.maps = AttentionMaps(regions, words, glimpses, dropout, last_dropout)
        self.regions = nn.ModuleList(_Projection(regions, words, dropout) for _ in range(glimpses))
        self.words = nn.ModuleList(_Projection(words, words, dropout) for _ in range(glimpses))
        self.joined = nn.ModuleList(
            nn.Sequential(nn.Dropout(dropout), normed_linear(words, words)) for _ in range(glimpses)
        )

    def forward(self, regions: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """The sum (B, W) of the words behind the last glimpse; arguments are those of `AttentionMaps`."""
        maps = self.maps(regions, words, mask)
        for glimpse, (of_region, of_word, joined) in enumerate(
            zip(self.regions, self.words, self.joined, strict=True)
        ):
            read = torch.einsum("brk,brt,btk->bk", of_region(regions), maps[:, glimpse], of_word(words))
            words = words + joined(read).unsqueeze(1)
        return (words * mask.unsqueeze(-1)).sum(dim=1)
