"""Judging by levels, in the order of precedence that docs/outcomes.md gives. Axes: L lane, P probe."""

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep import AtLevel, Evidence, Rule, VerdictTable
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.outcomes import at_level, has_diverged, is_moving, is_overfit, standing
from attnsweep.workloads.engine.schedule import tail_start
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.registry import check_declarations
from attnsweep.workloads.vocabulary import Outcome
from tests.refusals import refused

ZERO, CONTEXT = (
    AtLevel(outcome=outcome, level=level, says=level)
    for outcome, level in (("degenerate_zero", "zero"), ("marginal", "context"))
)
BY_LEVELS = VerdictTable((Rule.diverged(), Rule.solved(), CONTEXT, ZERO, Rule.moving()))


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
    verdicts = BY_LEVELS.judge(None, evidence)
    found = list(zip(verdicts.outcome[:, -1].tolist(), verdicts.detail[:, -1].tolist(), strict=True))
    assert found == [("diverged", ""), ("solved", ""), ("marginal", "context"), ("plateau", "moving"), ("plateau", "")]
    assert set(zip(verdicts.outcome[:, 0].tolist(), verdicts.detail[:, 0].tolist(), strict=True)) == {
        ("degenerate_zero", "zero")
    }


STEPS = np.array([0, 1, 2, 4, 7, 10])
POSITIVE = st.floats(1e-3, 1e3)


def _judged(loss_P: list[float], **levels: float) -> tuple[str, str]:
    """The last label of a training whose only reference level besides `solved` is `zero`."""
    evidence = Evidence(
        steps=STEPS[: len(loss_P)],
        metrics={"eval_loss": np.array([loss_P])},
        levels={name: np.array([level]) for name, level in levels.items()},
    )
    verdicts = VerdictTable((Rule.diverged(), Rule.solved(), ZERO, Rule.moving())).judge(None, evidence)
    return str(verdicts.outcome[0, -1]), str(verdicts.detail[0, -1])


def test_a_negative_loss_is_judged_by_its_size() -> None:
    levels = {"zero": -1.0, "solved": -3.0}
    assert _judged([-2.0] * 6, **levels) == ("plateau", "")
    assert _judged([-1.0, -1.5, -1.8, -1.9, -2.0, -2.1], **levels) == ("plateau", "moving")
    assert _judged([-2.0, -2.0, -2.0, -2.0, -2.0, -1.5], **levels) == ("plateau", "")
    assert _judged([-1.5, -1.2, -1.1, -1.0, -1.0, -0.995], **levels) == ("degenerate_zero", "zero")
    assert _judged([-1.5, 0.0, 0.5, 0.9, 0.9, 0.9], **levels) == ("plateau", "")
    assert _judged([-1.5, 0.0, 0.5, 0.9, 0.9, 1.1], **levels) == ("diverged", "")


def test_a_constant_loss_stands_still_and_is_not_overfit() -> None:
    for constant in (-2.0, 0.0, 2.0):
        loss_LP = np.full((1, 6), constant)
        falling = np.linspace(1.0, 0.0, 6)[None]
        evidence = Evidence(steps=STEPS, metrics={"eval_loss": loss_LP, "loss": falling}, levels={})
        assert not is_moving(STEPS, loss_LP).any()
        assert not is_overfit(evidence).any()
    evidence = Evidence(steps=STEPS, metrics={"eval_loss": falling - 2, "loss": falling}, levels={})
    assert not is_overfit(evidence).any()
    risen = np.array([[-1.0, -2.0, -2.0, -2.0, -1.89, -1.91]])
    evidence = Evidence(steps=STEPS, metrics={"eval_loss": risen, "loss": falling}, levels={})
    assert is_overfit(evidence).tolist() == [[False, False, False, False, True, False]]


@given(st.lists(POSITIVE, min_size=6, max_size=6), POSITIVE)
def test_labels_of_positive_losses_are_those_of_the_plain_multiples(loss_P: list[float], zero: float) -> None:
    loss_LP, zero_L = np.array([loss_P]), np.array([zero])
    before = np.searchsorted(STEPS, [tail_start(int(step)) for step in STEPS], side="right") - 1
    assert (is_moving(STEPS, loss_LP) == (loss_LP < 0.99 * loss_LP[:, before])).all()
    assert (has_diverged(loss_LP, zero_L) == ((loss_LP > 3.0 * zero) & (loss_LP > loss_LP[:, :1]))).all()
    assert (at_level(loss_LP, zero_L) == (np.abs(loss_LP - zero) <= 0.01 * zero)).all()


def _stands(loss: float, **levels: float) -> list[str]:
    level = {name: np.array([value]) for name, value in levels.items()}
    outcomes = {"zero": "degenerate_zero", "mean": "marginal"}
    stands = standing(np.array([[loss]]), level, outcomes)
    return ["/".join(label) for label, holds in stands.items() if holds.all()]


def test_a_loss_stands_at_the_nearest_level() -> None:
    assert _stands(1.003, zero=1.0, mean=1.0 - 1 / 200) == ["degenerate_zero/zero or mean"]
    assert _stands(0.996, zero=1.0, mean=1.0 - 1 / 200) == ["marginal/zero or mean"]
    assert _stands(1.003, zero=1.0, mean=0.9) == ["degenerate_zero/zero"]
    assert _stands(0.905, zero=1.0, mean=0.9) == ["marginal/mean"]
    assert _stands(0.95, zero=1.0, mean=0.9) == []
    assert _stands(1.0, zero=1.0, mean=float("nan")) == ["degenerate_zero/zero"]


def test_a_label_does_not_depend_on_the_levels_of_other_trainings() -> None:
    outcomes = {"zero": "degenerate_zero", "mean": "marginal", "context": "marginal"}
    levels = {
        "zero": np.ones(4),
        "mean": np.array([1.0, 0.995, 0.5, np.nan]),
        "context": np.array([0.2, 0.99, 0.505, 1.0]),
    }
    loss_LP = np.array([[1.0, 0.2], [1.0, 0.99], [1.0, 0.5], [1.0, 0.6]])

    def labels(lanes: slice) -> list[list[str]]:
        stands = standing(loss_LP[lanes], {name: each[lanes] for name, each in levels.items()}, outcomes)
        return [
            ["/".join(label) for label, holds in stands.items() for at in (0, 1) if holds[lane, at]]
            for lane in range(len(loss_LP[lanes]))
        ]

    together = labels(slice(0, 4))
    assert together == [found for lane in range(4) for found in labels(slice(lane, lane + 1))]
    assert together[1] == ["degenerate_zero/zero or mean or context", "marginal/zero or mean or context"]
    assert together[3] == ["degenerate_zero/zero or context"]


def _rule(outcome: str, *details: str) -> Rule:
    return Rule(
        outcome=outcome,
        when=lambda _, evidence: evidence.metrics["held"] > 0,
        says="held",
        details=details or ("",),
        which=(lambda evidence: np.where(evidence.metrics["held"] > 1, *details[::-1])) if len(details) > 1 else None,
    )


def _labels(table: VerdictTable, loss: list[float], **levels: float) -> list[tuple[str, str]]:
    loss_LP = np.array([loss])
    evidence = Evidence(
        steps=np.arange(len(loss)),
        metrics={"eval_loss": loss_LP, "held": np.array([[0.0, 1.0, 2.0]])},
        levels={name: np.array([level]) for name, level in levels.items()},
    )
    verdicts = table.judge(None, evidence)
    return list(zip(verdicts.outcome[0].tolist(), verdicts.detail[0].tolist(), strict=True))


def test_the_first_row_that_holds_decides() -> None:
    zero = AtLevel(
        outcome="degenerate_zero", level="zero", says="", when=lambda _, evidence: evidence.metrics["held"] > 1
    )
    mean = AtLevel(outcome="marginal", level="mean", says="")
    levels = {"zero": 1.0, "mean": 0.5, "solved": 0.1}
    runaway = _rule("runaway", "near", "far")
    first = VerdictTable((Rule.diverged(), Rule.solved(), zero, runaway, mean))
    assert _labels(first, [1.0, 1.0, 1.0], **levels) == [
        ("plateau", ""),
        ("runaway", "near"),
        ("degenerate_zero", "zero"),
    ]
    assert _labels(first, [0.5, 0.5, 0.5], **levels) == [("marginal", "mean")] * 3
    assert _labels(first, [0.05, 0.05, 9.0], **levels) == [("solved", ""), ("solved", ""), ("diverged", "")]
    last = VerdictTable((runaway, mean, zero))
    assert _labels(last, [0.5, 0.5, 1.0], **levels) == [("marginal", "mean"), ("runaway", "near"), ("runaway", "far")]
    assert _labels(first, [1.0, 1.0, 1.0], **levels | {"mean": 0.995})[2] == ("degenerate_zero", "zero or mean")


class Judged(CategoryPairs):
    """Two rows by text."""

    outcomes: ClassVar[dict[str, Outcome]] = {"memorized": Outcome("knows its pairs only")}
    verdicts = VerdictTable(
        (Rule(outcome="solved", when="eval_loss <= 0.5"), Rule(outcome="memorized", when="eval_loss < 0.6"))
    )


@pytest.mark.parametrize(
    ("subject", "changed"),
    [
        ("the outcome memorized of Changed", {"later": "eval_loss < 0.5"}),
        ("Changed.outcomes", {"own": {"copied": Outcome("repeats its input")}}),
        ("Changed.verdicts", {"label": "copied"}),
    ],
)
def test_a_table_with_an_outcome_that_cannot_occur_or_is_unknown_is_refused(
    subject: str, changed: dict[str, Any]
) -> None:
    check_declarations(Judged)
    first, later = Judged.verdicts.rows
    assert first.says == "eval_loss <= 0.5"
    later = Rule(outcome=changed.get("label", "memorized"), when=changed.get("later", "eval_loss < 0.6"))
    own = Judged.outcomes | changed.get("own", {})
    with refused(subject, SpecError):
        check_declarations(type("Changed", (Judged,), {"outcomes": own, "verdicts": VerdictTable((first, later))}))
