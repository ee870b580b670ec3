"""Judging by levels, in the order of precedence that docs/outcomes.md gives. Axes: L lane, P probe."""

from typing import Any, ClassVar

import numpy as np
import pytest

from attnsweep import AtLevel, Evidence, Rule, VerdictTable
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.outcomes import standing
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.registry import check_declarations
from attnsweep.workloads.vocabulary import Outcome
from tests.refusals import refused

ZERO, CONTEXT = (
    AtLevel(outcome=outcome, level=level) for outcome, level in (("degenerate_zero", "zero"), ("marginal", "context"))
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


def _rule(outcome: str, *details: str) -> Rule:
    return Rule(
        outcome=outcome,
        when=lambda _, evidence: evidence.metrics["held"] > 0,
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
    zero = AtLevel(outcome="degenerate_zero", level="zero", when=lambda _, evidence: evidence.metrics["held"] > 1)
    mean = AtLevel(outcome="marginal", level="mean")
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
        ("Changed.outcomes", {"own": {"copied": Outcome("repeats its input")}}),
        ("Changed.verdicts", {"label": "copied"}),
    ],
)
def test_a_table_with_an_outcome_that_cannot_occur_or_is_unknown_is_refused(
    subject: str, changed: dict[str, Any]
) -> None:
    check_declarations(Judged)
    first, later = Judged.verdicts.rows
    later = Rule(outcome=changed.get("label", "memorized"), when="eval_loss < 0.6")
    own = Judged.outcomes | changed.get("own", {})
    with refused(subject, SpecError):
        check_declarations(type("Changed", (Judged,), {"outcomes": own, "verdicts": VerdictTable((first, later))}))
