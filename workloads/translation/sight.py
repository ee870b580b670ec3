"""Attention masks of a translator: they hide padding, later words in the decoder, and what the structure excludes.

Axes: B sentence, Q query token, K key token.
"""

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.sight import Sight
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.translation.corpus import PAD
from attnsweep.workloads.translation.parameters import TranslationParameters


class Structure(nn.Module):
    """Restricts self-attention of query i to keys j in a band, |i - j| <= window, or among num_pos columns.

    Window and columns are buffers, so that lanes of a pack may differ in them. Cross-attention sees all of the source.
    Source: Conti 2024, section 2.2, the sets Sigma_2(w) and Sigma_3(w, num-pos), as masks.

    Attributes:
        window: () int64, half-width of the band; at least the longest sentence if there is no restriction.
        num_pos: () int64, the number of columns besides the band.
        by_rarity: () bool, whether the columns are the rarest tokens (in the decoder: so far) or the first tokens.
    """

    window: Tensor
    num_pos: Tensor
    by_rarity: Tensor

    def __init__(self, parameters: TranslationParameters, longest: int) -> None:
        super().__init__()
        window = longest if parameters.window is None else parameters.window
        self.register_buffer("window", torch.tensor(window))
        self.register_buffer("num_pos", torch.tensor(parameters.num_pos))
        self.register_buffer("by_rarity", torch.tensor(parameters.global_columns == "rarest"))

    def encoder(self, batch: Batch) -> Tensor:
        """Returns a mask (B, S, S), true where a query of the encoder sees the key."""
        source_BS, rarity_BS = batch["source"], batch["source_rarity"]
        is_word_BK = (source_BS != PAD).unsqueeze(1)
        rank_BK = _rarer(rarity_BS).sum(1, keepdim=True)
        return is_word_BK & self._seen(source_BS.shape[1], rank_BK)

    def decoder(self, batch: Batch) -> Tensor:
        """Returns a mask (B, T, T), true where a query of the decoder sees the key, which is never a later word."""
        read_BT = batch["read"]
        # The rarest of the words up to the query: a mask that depended on later words would reveal them.
        rank_BQK = _rarer(batch["read_rarity"]).cumsum(1)
        T = read_BT.shape[1]
        past_QK = torch.ones(T, T, dtype=torch.bool, device=read_BT.device).tril()
        return (read_BT != PAD).unsqueeze(1) & past_QK & self._seen(T, rank_BQK)

    def _seen(self, n: int, rank_BQK: Tensor) -> Tensor:
        position = torch.arange(n, device=rank_BQK.device)
        in_band = (position.unsqueeze(1) - position).abs() <= self.window
        order = torch.where(self.by_rarity, rank_BQK, position)
        return in_band | (order < self.num_pos)


def _rarer(rarity_BK: Tensor) -> Tensor:
    """Returns (B, M, K): 1 where token m is rarer than token k, or equally rare and earlier in the sentence."""
    n = rarity_BK.shape[1]
    before_MK = torch.ones(n, n, dtype=torch.bool, device=rarity_BK.device).triu(1)
    one, other = rarity_BK.unsqueeze(2), rarity_BK.unsqueeze(1)
    return ((one > other) | ((one == other) & before_MK)).long()


def sights(structure: Structure, batch: Batch, dtype: torch.dtype) -> dict[str, Sight]:
    """Returns the attention mask (`Sight`) of each attention layer on a batch, by the names of `LAYERS`."""
    source_seen_B1K = (batch["source"] != PAD).unsqueeze(1)
    T = batch["read"].shape[1]
    return {
        "encoder_self": _sight(structure.encoder(batch), dtype, is_square=True),
        "decoder_self": _sight(structure.decoder(batch), dtype, is_square=True),
        "cross": _sight(source_seen_B1K.expand(-1, T, -1), dtype, is_square=False),
    }


def _sight(seen_BQK: Tensor, dtype: torch.dtype, *, is_square: bool) -> Sight:
    if is_square:
        # A query in the padding sees itself: a softmax over no keys is NaN, and so is its gradient, even times 0.
        seen_BQK = seen_BQK | torch.eye(seen_BQK.shape[1], dtype=torch.bool, device=seen_BQK.device)
    return Sight.of(seen_BQK, dtype)
