"""Scores of the attention of CLS, for each head at each probe. Axes: L lane, B string, H head, T token."""

import functools

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, HeadScores
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.formal_languages.data import LanguageLanes, looked_at_batch, tokens_of
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.language import Tokens
from attnsweep.workloads.vocabulary import NO_ROLE

SCORE_NAMES = ("first_attention", "attention_entropy")
POSITIONAL = 0.5
"""A head is `positional` if CLS gives position 1 more than this share of its attention, on average over strings."""

_N_STRINGS = 32


def first_attention(module: Encoder, weight_BHT: Tensor) -> Tensor:
    """Returns the attention of CLS to position 1, averaged over strings, (H,); NaN without position features."""
    to_first_H = weight_BHT[:, :, 1].mean(0)
    return to_first_H if module.shape.n_position_features else torch.full_like(to_first_H, torch.nan)


def attention_entropy(weight_BHT: Tensor, tokens: Tokens) -> Tensor:
    """Returns the entropy of the attention of CLS, relative to the maximum log n, (H,), averaged over strings.
    A token that stands for several positions shares its attention equally among them."""
    log_share_BHT = weight_BHT.clamp(min=1e-30).log() - tokens.log_count_BT[:, None]
    return -(weight_BHT * log_share_BHT).sum(-1).mean(0) / tokens.log_n


@functools.lru_cache(maxsize=1)
def _looked_at(lanes: LanguageLanes) -> Batch:
    # The strings are cached from probe to probe, because drawing long strings takes as long as scoring attention heads
    # on them.
    return looked_at_batch(lanes, _N_STRINGS)


def score_heads(template: Encoder, lanes: LanguageLanes, state: State) -> HeadScores:
    """Scores the heads of L trainings, (L, n_layers, n_heads), on strings of training length. The role is `positional`
    or `none`. `template` is an encoder of the pack's shape; `state` has parameters and buffers, (L, ...) by name."""

    def scores(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        assert isinstance(module, Encoder)
        tokens = tokens_of(batch)
        attention = module.trace(tokens)[1]
        to_first = torch.stack([first_attention(module, weight_BHT) for weight_BHT in attention])
        return to_first, torch.stack([attention_entropy(weight_BHT, tokens) for weight_BHT in attention])

    with torch.no_grad():
        lane_scores = over_lanes(template, scores)(*parted(template, state), _looked_at(lanes))
    arrays = [score.to("cpu", torch.float64).numpy() for score in lane_scores]
    role = np.where(arrays[0] > POSITIONAL, "positional", NO_ROLE)
    return HeadScores(scores=dict(zip(SCORE_NAMES, arrays, strict=True)), role=role)
