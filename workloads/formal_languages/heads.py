"""Scores of CLS's attention, at each probe. Axes: L lane, B string, H head, T token."""

import functools

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, HeadScores
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.formal_languages.data import LanguageLanes, looked_at_batch, tokens_of
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.tokens import Tokens
from attnsweep.workloads.vocabulary import NO_ROLE

SCORE_NAMES = ("first_attention", "attention_entropy")
POSITIONAL = 0.5
"""A head is `positional` if CLS gives position 1 more than this share of its attention, on average over strings."""

_N_STRINGS = 32


def first_attention(module: Encoder, weight_BHT: Tensor) -> Tensor:
    """(H,) CLS's attention to position 1, mean over strings; NaN if the encoder cannot tell position 1 from others."""
    to_first_H = weight_BHT[:, :, 1].mean(0)
    return to_first_H if module.shape.n_position_features else torch.full_like(to_first_H, torch.nan)


def attention_entropy(weight_BHT: Tensor, tokens: Tokens) -> Tensor:
    """(H,) entropy of CLS's attention over positions, divided by its maximum log n; mean over strings."""
    each_BHT = weight_BHT.clamp(min=1e-30).log() - tokens.log_count_BT[:, None]
    return -(weight_BHT * each_BHT).sum(-1).mean(0) / tokens.log_n


@functools.lru_cache(maxsize=1)
def _looked_at(lanes: LanguageLanes) -> Batch:
    # Kept from probe to probe: drawing long strings costs as much as scoring heads on them.
    return looked_at_batch(lanes, _N_STRINGS)


def score_heads(template: Encoder, lanes: LanguageLanes, state: State) -> HeadScores:
    """Scores (L, n_layers, n_heads) on strings of training length, and the role `positional` or `none`.

    Args:
        template: An encoder of the pack's shape.
        lanes: The L trainings.
        state: Their parameters and buffers, (L, ...) by name.
    """

    def scores(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        assert isinstance(module, Encoder)
        tokens = tokens_of(batch)
        attention = module.trace(tokens)[1]
        to_first = torch.stack([first_attention(module, weight_BHT) for weight_BHT in attention])
        return to_first, torch.stack([attention_entropy(weight_BHT, tokens) for weight_BHT in attention])

    parameters, buffers = parted(template, state)
    with torch.no_grad():
        found = over_lanes(template, scores)(parameters, buffers, _looked_at(lanes))
    arrays = [each.to("cpu", torch.float64).numpy() for each in found]
    role = np.where(arrays[0] > POSITIONAL, "positional", NO_ROLE)
    return HeadScores(scores=dict(zip(SCORE_NAMES, arrays, strict=True)), role=role)
