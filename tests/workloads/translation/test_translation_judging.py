"""The outcomes of translators, case by case, on hand-made evidence. Axes: L lane, P probe."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.translation.workload import VERDICTS

LEVELS = {"uniform": 5.0, "unigram": 4.0, "bigram": 3.0, "language_model": 2.0, "grammar": 0.1, "solved": 0.2}
OF_REAL_TEXT = {"uniform": 5.0, "unigram": 4.0, "bigram": 3.0, "solved": math.nan}


def _evidence(
    eval_loss: Sequence[float],
    train_loss: Sequence[float] | None = None,
    source_gain: float = 1.0,
    levels: dict[str, float] = LEVELS,
) -> Evidence:
    """The evidence of one training; by default its training loss is a tenth lower than its held-out loss."""
    held_out = np.array([eval_loss])
    return Evidence(
        steps=np.arange(len(eval_loss)) * 10,
        metrics={
            "eval_loss": held_out,
            "loss": 0.9 * held_out if train_loss is None else np.array([train_loss]),
            "source_gain": np.full_like(held_out, source_gain),
        },
        levels={name: np.array([value]) for name, value in levels.items()},
    )


def _last(evidence: Evidence) -> tuple[str, str]:
    verdicts = VERDICTS.judge(None, evidence)
    return verdicts.outcome[0, -1], verdicts.detail[0, -1]


@pytest.mark.parametrize(
    ("evidence", "wanted"),
    [
        (_evidence([5.0, 15.1]), ("diverged", "")),
        (_evidence([5.0, math.nan]), ("diverged", "")),
        # Far above the uniform law, but not above its own start.
        (_evidence([16.0, 15.1], [1.0, 2.0]), ("plateau", "moving")),
        (_evidence([5.0, 0.19]), ("solved", "")),
        (_evidence([5.0, 0.2], [5.0, 0.1]), ("plateau", "moving")),
        (_evidence([5.0, 2.0, 2.2], [5.0, 1.8, 1.0]), ("overfit", "")),
        (_evidence([5.0, 2.0, 2.09], [5.0, 1.8, 1.0]), ("plateau", "")),
        # Both losses rose: no overfitting.
        (_evidence([5.0, 2.0, 2.2], [5.0, 1.8, 1.9]), ("plateau", "")),
        # Still above the minimum, although it has fallen since.
        (_evidence([5.0, 2.0, 2.9, 2.2], [5.0, 1.8, 1.0, 0.9]), ("overfit", "")),
        (_evidence([5.0, 4.0], source_gain=0.0), ("degenerate_zero", "unigram")),
        (_evidence([5.0, 3.95], source_gain=0.0), ("degenerate_zero", "bigram")),
        (_evidence([5.0, 3.0], source_gain=0.0), ("degenerate_zero", "bigram")),
        (_evidence([5.0, 2.96], source_gain=0.0), ("marginal", "language_model")),
        (_evidence([5.0, 3.97], source_gain=0.011), ("plateau", "moving")),
        (_evidence([1.0, 1.0]), ("plateau", "")),
        (_evidence([1.0, 0.98]), ("plateau", "moving")),
    ],
)
def test_the_order_of_the_definitions(evidence: Evidence, wanted: tuple[str, str]) -> None:
    assert _last(evidence) == wanted


@pytest.mark.parametrize(
    ("eval_loss", "source_gain", "wanted"),
    [
        ([5.0, 1e-9], 1.0, ("plateau", "moving")),
        ([5.0, 0.0], 0.0, ("marginal", "language_model")),
        ([5.0, 4.0], 0.0, ("degenerate_zero", "unigram")),
        ([5.0, 3.0], 0.0, ("degenerate_zero", "bigram")),
        ([5.0, 20.0], 1.0, ("diverged", "")),
    ],
)
def test_real_text_is_never_solved(eval_loss: list[float], source_gain: float, wanted: tuple[str, str]) -> None:
    assert _last(_evidence(eval_loss, source_gain=source_gain, levels=OF_REAL_TEXT)) == wanted
