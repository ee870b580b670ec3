"""Scores and roles of a GPT's attention heads at each probe. Axes: L lane, N block, H head, B sequence, T token."""

from typing import cast

from attnsweep.workloads.diagnostics.roles.scores import score_patterns
from attnsweep.workloads.engine.contract import HeadScores
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.gpt.data import GPTLanes, looked_at_sequences
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.tasks import TASKS

_N_SEQUENCES = 32


def score_heads(template: GPT, lanes: GPTLanes, state: State) -> HeadScores:
    """Scores the heads of L trainings, (L, N, H), on held-out sequences, and labels their roles (`score_patterns`).

    `previous_token` is scored at the tokens where the task needs it. In `induction` these are the first round of the
    segment, because an induction head reads there what a previous-token head wrote.

    Args:
        template: A model of the pack's shape.
        lanes: The L trainings.
        state: Their parameters and buffers, (L, ...) by name.
    """
    drawn = looked_at_sequences(lanes, _N_SEQUENCES)
    batch = {
        "token": drawn.token_LBT,
        "counts": drawn.counts_LBT,
        "needs_previous": TASKS[lanes.shared.task].needs_previous(drawn),
    }
    return score_patterns(template, lambda module, token: cast(GPT, module).attention(token), lanes, state, batch)
