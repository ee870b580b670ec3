"""When results end a sweep: the same trials, in whatever order they ended, decide alike."""

import itertools
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.trial import EndedTrainings, Ending
from attnsweep.orchestrator.running.trials import EarlyEnd
from attnsweep.search_spaces import LossQuantile, Rate, Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError


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
        ("solved_rate >= 0", ("pruned", "pruned"), 1.0, False),
        ("loss_quantile <= 0.1", ("plateau",), 0.1, True),
        ("loss_quantile <= 0.1", ("plateau",), 0.2, False),
        ("diverged_rate <= 0", ("failed",), 1.0, False),
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
        ((2.0, 2.0, 2.0), {}, True),
        ((1.0, 2.0, 3.0), {"objective": LossQuantile(direction="maximize")}, False),
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


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"target": "solved >= 0.95"}, "target"),
        ({"target": "sovled_rate >= 0.95"}, "target"),
        ({"patience": 0}, "patience"),
        ({"patience": 3, "objective": (Rate("solved"), LossQuantile())}, "patience"),
    ],
)
def test_what_cannot_end_a_sweep_is_refused(changes: dict[str, Any], subject: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(_spec(**changes), CategoryPairsParameters)
    assert raised.value.subject == subject
