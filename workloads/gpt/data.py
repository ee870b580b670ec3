"""Draws the sequences on which a pack of GPTs is trained, evaluated and scored, and scores the attention heads on them.

Axes: L lane, N block, H head, B sequence, T token.
"""

import functools
from typing import cast

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.scores import score_patterns
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.gpt.tasks import TASKS, Laws, Sequences

GPTLanes = Lanes[GPTParameters]

LEVEL = "level/"
"""The prefix of a reference level's name in an evaluation batch."""


def training_batch(lanes: GPTLanes, step: int) -> Batch:
    """Draws the batch of a step: `token`, `target` and `weight`, each (L, B, T). Weights are equal where a prediction
    counts and 0 elsewhere, and sum to 1 over a training's batch."""
    return _batch(lanes, _sequences(lanes, "batch", lanes.shared.batch_size, step))


def evaluation_batch(lanes: GPTLanes) -> Batch:
    """Draws held-out sequences, and computes on them the losses `level/<name>` (L,) of the reference predictors."""
    drawn = _sequences(lanes, "eval", lanes.shared.eval_batch_size, 0)
    batch = _batch(lanes, drawn)
    nats = TASKS[lanes.shared.task].reference_nats(_laws(lanes), lanes.shared.n_words, drawn)
    weight_LBT = _weight(drawn.counts_LBT)
    return batch | {
        f"{LEVEL}{name}": torch.where(drawn.counts_LBT, value * weight_LBT, 0.0).sum((1, 2)).to(lanes.dtype)
        for name, value in nats.items()
    }


@functools.lru_cache(maxsize=1)
def _laws(lanes: GPTLanes) -> Laws:
    shared = lanes.shared
    contrast_L = lanes.tensor("chain_contrast", torch.float64)
    return TASKS[shared.task].laws(lanes.streams, shared.n_words, contrast_L, shared.corpus)


def _sequences(lanes: GPTLanes, name: str, n_sequences: int, step: int) -> Sequences:
    shared = lanes.shared
    shape = (n_sequences, shared.n_tokens)
    return TASKS[shared.task].sequences(lanes.streams, name, _laws(lanes), shared.n_words, shape, step)


def _batch(lanes: GPTLanes, drawn: Sequences) -> Batch:
    return {
        "token": drawn.token_LBT,
        "target": drawn.target_LBT,
        "weight": _weight(drawn.counts_LBT).to(lanes.dtype),
    }


def _weight(counts_LBT: Tensor) -> Tensor:
    return counts_LBT / counts_LBT.sum((1, 2), keepdim=True).double()


_N_SEQUENCES = 32


def score_heads(template: GPT, lanes: GPTLanes, state: State) -> HeadScores:
    """Scores the heads of L trainings, (L, N, H), on held-out sequences, and labels their roles (`score_patterns`).

    `previous_token` is scored at the tokens where the task needs it. In `induction` these are the first round of the
    segment, because an induction head reads there what a previous-token head wrote. `template` is a model of the pack's
    shape; `state` has parameters and buffers, (L, ...) by name.
    """
    drawn = _sequences(lanes, "heads", _N_SEQUENCES, 0)
    batch = {
        "token": drawn.token_LBT,
        "counts": drawn.counts_LBT,
        "needs_previous": TASKS[lanes.shared.task].needs_previous(drawn),
    }
    return score_patterns(template, lambda module, token: cast(GPT, module).attention(token), lanes, state, batch)
