"""Judging by levels, in the order of precedence that docs/outcomes.md gives. Axes: L lane, P probe."""

import numpy as np

from attnsweep import Evidence, judge_by_levels


def test_a_loss_is_judged_by_the_level_at_which_it_stands() -> None:
    loss_LP = np.array(
        [
            [1.0, 9.0, 9.0],  # above its start and three times the zero level
            [1.0, 0.5, 0.05],
            [1.0, 0.5, 0.501],
            [1.0, 0.8, 0.6],
            [1.0, 0.7, 0.7],
        ]
    )
    levels = {"zero": np.ones(5), "context": np.full(5, 0.5), "solved": np.full(5, 0.1)}
    evidence = Evidence(steps=np.array([0, 50, 100]), metrics={"eval_loss": loss_LP}, levels=levels)
    verdicts = judge_by_levels(evidence, {"context": "marginal", "zero": "degenerate_zero"})
    found = list(zip(verdicts.outcome[:, -1].tolist(), verdicts.detail[:, -1].tolist(), strict=True))
    assert found == [("diverged", ""), ("solved", ""), ("marginal", "context"), ("plateau", "moving"), ("plateau", "")]
    assert set(zip(verdicts.outcome[:, 0].tolist(), verdicts.detail[:, 0].tolist(), strict=True)) == {
        ("degenerate_zero", "zero")
    }


def test_the_first_level_named_wins_where_two_coincide() -> None:
    levels = {"zero": np.ones(1), "constant": np.ones(1), "solved": np.zeros(1)}
    evidence = Evidence(steps=np.array([0]), metrics={"eval_loss": np.ones((1, 1))}, levels=levels)
    stuck = {"constant": "marginal", "zero": "degenerate_zero"}
    assert judge_by_levels(evidence, stuck).detail.tolist() == [["constant"]]
