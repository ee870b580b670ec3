"""The outcome of a translator's training. Axes: L lane, P probe."""

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.engine.contract import Evidence, Verdicts

SOLVED_SHARE = 0.05
"""A solved training has all of what the source tells but this share: the margin above the achievable, as a share of
what lies between the law of the target alone and the law given the source. Ours."""
IGNORES_SOURCE = 0.01
"""Nats per token that another sentence's source costs, below which the output does not depend on the source. Ours."""
OVERFIT_SHARE = 0.05
"""An overfit training's held-out loss has risen by this share above its own least, while it went on to learn what it
trains on. Ours."""


def judge_translation(evidence: Evidence) -> Verdicts:
    """Names the state of each training at each probe, in the order of the cases below."""
    loss, levels = evidence.metrics["eval_loss"], evidence.levels
    ignores_source = np.abs(evidence.metrics["source_gain"]) < IGNORES_SOURCE
    at_unigram, at_bigram = (loss > (1.0 - outcomes.AT_LEVEL) * levels[name][:, None] for name in ("unigram", "bigram"))
    return Verdicts.first_of(
        {
            "diverged": outcomes.has_diverged(loss, levels["uniform"]),
            "solved": loss < levels["solved"][:, None],
            "overfit": _is_overfit(loss, evidence.metrics["loss"]),
            ("degenerate_zero", "unigram"): ignores_source & at_unigram,
            ("degenerate_zero", "bigram"): ignores_source & at_bigram,
            ("marginal", "language_model"): ignores_source,
            ("plateau", "moving"): outcomes.is_moving(evidence.steps, loss),
        }
    )


def _is_overfit(eval_loss: NDArray[np.float64], train_loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    least = np.fmin.accumulate(eval_loss, axis=1)
    at_least = np.maximum.accumulate(np.where(eval_loss == least, np.arange(eval_loss.shape[1]), 0), axis=1)
    then = np.take_along_axis(train_loss, at_least, axis=1)
    risen: NDArray[np.bool_] = eval_loss > (1.0 + OVERFIT_SHARE) * least
    return risen & (train_loss < then)
