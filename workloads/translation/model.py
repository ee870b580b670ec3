"""The trained module, its Xavier initialization, and greedy translation. Masks hide padding, later words in the
decoder, and what a training's restriction of attention excludes.

Axes: L lane, B sentence, S source token, T target token, V word, Q query token, K and M key token.
"""

import math

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Sight
from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.initialization import StartingLaw
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS
from attnsweep.workloads.translation.data import StudiedCorpus
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.translator import Translator, TranslatorShape


class Structure(nn.Module):
    """Restricts self-attention: query i sees the keys j with |i - j| <= window, and `num_pos` further keys, the rarest
    or first tokens of the sentence. Cross-attention sees all of the source. Source: Conti 2024, section 2.2, the sets
    Sigma_2(w) and Sigma_3(w, num-pos), as masks.

    Attributes:
        window: The tokens of the longest sentence if there is no restriction.
        by_rarity: Whether the further keys are the rarest tokens (in the decoder: so far) or the first.
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
        """Where queries see keys, (B, S, S)."""
        source_BS, rarity_BS = batch["source"], batch["source_rarity"]
        is_word_BK = (source_BS != PAD).unsqueeze(1)
        rank_BK = _rarer(rarity_BS).sum(1, keepdim=True)
        return is_word_BK & self._seen(source_BS.shape[1], rank_BK)

    def decoder(self, batch: Batch) -> Tensor:
        """Where queries see keys, (B, T, T): never later words."""
        read_BT = batch["read"]
        # Ranked among the words so far: a rank among all would reveal later ones.
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
    """(B, M, K): 1 where token M is rarer than K, or equally rare and earlier."""
    n = rarity_BK.shape[1]
    before_MK = torch.ones(n, n, dtype=torch.bool, device=rarity_BK.device).triu(1)
    one, other = rarity_BK.unsqueeze(2), rarity_BK.unsqueeze(1)
    return ((one > other) | ((one == other) & before_MK)).long()


def sights(structure: Structure, batch: Batch, dtype: torch.dtype) -> dict[str, Sight]:
    source_seen_B1K = (batch["source"] != PAD).unsqueeze(1)
    seen = {"encoder_self": structure.encoder(batch), "decoder_self": structure.decoder(batch)}
    for name, seen_BQK in seen.items():
        # A query in the padding sees itself: a softmax over no keys, and its gradient, are NaN, even times 0.
        seen[name] = seen_BQK | torch.eye(seen_BQK.shape[1], dtype=torch.bool, device=seen_BQK.device)
    seen["cross"] = source_seen_B1K.expand(-1, batch["read"].shape[1], -1)
    return {name: Sight.of(seen_BQK, dtype) for name, seen_BQK in seen.items()}


class TranslationModel(nn.Module):
    """The translator, with the masks of its self-attention and, for its loss, `label_smoothing`."""

    def __init__(self, parameters: TranslationParameters, studied: StudiedCorpus) -> None:
        super().__init__()
        source, target = studied.corpus.source, studied.corpus.target
        longest = max(source.tokens.shape[1], target.tokens.shape[1])
        shape = TranslatorShape(
            n_source_words=len(source.words),
            n_target_words=len(target.words),
            longest=longest,
            d_model=parameters.d_model,
            n_heads=parameters.n_heads,
            d_ffn=parameters.d_ffn,
            eps_inside_root=parameters.layer_norm_convention == "inside_root",
            qk=parameters.qk,
            qk_rank=parameters.qk_rank,
            dropout=parameters.dropout,
        )
        self.translator = Translator(shape, parameters.attention_scale, parameters.layer_norm_eps)
        self.structure = Structure(parameters, longest)
        self.label_smoothing = per_lane(parameters.label_smoothing)

    def forward(self, batch: Batch) -> Tensor:
        logit_BTV: Tensor = self.translator(batch["source"], batch["read"], self._sights(batch))
        return logit_BTV

    def attention(self, batch: Batch) -> dict[str, Tensor]:
        return self.translator.attention(batch["source"], batch["read"], self._sights(batch))

    def _sights(self, batch: Batch) -> dict[str, Sight]:
        return sights(self.structure, batch, self.translator.scale.dtype)


def xaviers_law(streams: Streams) -> StartingLaw:
    """Uniform on +-sqrt(6 / (rows + columns)) for all matrices, embeddings too: `torch.nn.init.xavier_uniform_`.
    Source: Glorot & Bengio 2010, equation 16."""

    def law(name: str, shape: tuple[int, ...]) -> Tensor | None:
        if len(shape) < 2:
            return None
        return math.sqrt(6.0 / (shape[0] + shape[1])) * (2.0 * streams.uniform(f"init/{name}", shape) - 1.0)

    return law


def greedy_words(
    template: nn.Module, parameters: State, buffers: State, sources: Batch, rarity_V: Tensor, n_words: int
) -> Tensor:
    """Each training's translations, greedy word by word: (L, B, T), with PAD from EOS on, cut at `n_words`.

    Args:
        template: The module of ONE training, which maps a batch to logits (B, T, V).
        sources: `source` and `source_rarity`, (L, B, S).
        rarity_V: The frequency ranks of target words.
    """
    last_logit = over_lanes(template, lambda module, batch: module(batch)[:, -1])
    source_LBS = sources["source"]
    read_LBT = torch.full((*source_LBS.shape[:2], 1), SOS, device=source_LBS.device)
    has_ended_LB = torch.zeros(source_LBS.shape[:2], dtype=torch.bool, device=source_LBS.device)
    with torch.no_grad():
        while read_LBT.shape[2] <= n_words and not has_ended_LB.all():
            batch = sources | {"read": read_LBT, "read_rarity": rarity_V[read_LBT]}
            word_LB = last_logit(parameters, buffers, batch).argmax(-1)
            has_ended_LB = has_ended_LB | (word_LB == EOS)
            read_LBT = torch.cat([read_LBT, word_LB.masked_fill(has_ended_LB, PAD).unsqueeze(-1)], dim=-1)
    return read_LBT[..., 1:]
