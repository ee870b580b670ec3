"""When results end a sweep: the same trials, in whatever order they ended, decide alike."""

import itertools
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.trial import EndedTrainings, Ending
from attnsweep.orchestrator.running.trials import EarlyEnd
from attnsweep.search_spaces import LossQuantile, Sweep


def _spec(**changes: Any) -> Sweep:
    return Sweep(name="s", workload="category_pairs", space={}, trials=9, objective=LossQuantile()).but(**changes)


def _ended(*outcomes: str, loss: float = 1.0) -> EndedTrainings:
    return EndedTrainings({number: Ending(outcome, False, loss) for number, outcome in enumerate(outcomes)})


@pytest.mark.parametrize(
    ("target", "outcomes", "loss", "is_met"),
    [
        ("solved_rate >= 0.5", ("solved", "plateau"), 1.0, True),
        ("solved_rate >= 0.6", ("solved", "plateau"), 1.0, False),
        ("solved_rate >= 0.6", ("solved", "failed"), 1.0, True),
        ("loss_quantile <= 0.1", ("plateau",), 0.1, True),
        ("loss_quantile <= 0.1", ("plateau",), 0.2, False),
    ],
)
def test_a_target(target: str, outcomes: tuple[str, ...], loss: float, is_met: bool) -> None:
    early = EarlyEnd(_spec(target=target))
    early.count(3, _ended(*outcomes, loss=loss))
    assert bool(early.reason) == is_met


@pytest.mark.parametrize(
    ("losses", "changes", "is_over"),
    [
        ((3.0, 2.0, 2.0, 2.5), {}, True),
        ((3.0, 2.0, 2.0, 1.9), {}, False),
        ((3.0, 2.0, 2.5), {}, False),
        ((3.0, 2.0, 1.0), {"objective": LossQuantile(direction="maximize")}, True),
        ((1.0, 2.0, 2.5), {"constraints": ("loss_quantile >= 2",)}, False),
        ((1.0, 2.0, 2.5, 2.5), {"constraints": ("loss_quantile >= 2",)}, True),
    ],
)
def test_patience_does_not_depend_on_the_order_in_which_trials_end(
    losses: tuple[float, ...], changes: dict[str, Any], is_over: bool
) -> None:
    for order in itertools.permutations(range(len(losses))):
        early = EarlyEnd(_spec(patience=2, **changes))
        for trial in order:
            early.reason = ""
            early.count(trial, _ended("plateau", loss=losses[trial]))
        assert bool(early.reason) == is_over
