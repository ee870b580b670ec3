"""Objectives and constraints: their values are finite, how they are written, and which samplers take them."""

import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep import Float, LossQuantile, OnsetQuantile, Pruner, Rate, StuckRate, Sweep
from attnsweep.search_spaces.measured import NEVER, WORST_LOSS, objective_value, read_constraints
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError

TWO = (Rate("solved"), LossQuantile(quantile=0.9))


def sweep(**changes: Any) -> Sweep:
    space = {"n_steps": 8, "init_sigma": Float(1e-4, 1.0, log=True)}
    plain: dict[str, Any] = {"name": "s", "workload": "category_pairs", "space": space, "trials": 8}
    return Sweep(**plain | changes)


def test_they_are_written_and_read_back() -> None:
    spec = sweep(objective=list(TWO), constraints=["stuck_rate <= 0.1"])
    assert spec.objectives == TWO
    assert Sweep.from_json(spec.to_json()) == spec
    assert sweep(constraints="stuck_rate <= 0.1").constraints == spec.constraints
    assert sweep(objective=["stuck_rate", {"kind": "rate", "outcome": "solved"}]).objectives == (StuckRate(), TWO[0])


def test_a_constraint_is_met_up_to_its_bound_and_a_diverged_training_is_on_the_wrong_side() -> None:
    most, least, loss = read_constraints(("stuck_rate <= 0.25", "solved_rate >= 0.5", "loss_quantile <= 1e-2"))
    assert (most.excess(0.25), most.excess(0.5), least.excess(0.5), least.excess(0.25)) == (0.0, 0.25, 0.0, 0.25)
    assert most.measured == StuckRate(direction="minimize")
    assert least.measured == Rate("solved", direction="maximize")
    assert (loss.measured, loss.bound) == (LossQuantile(), 0.01)
    assert read_constraints(["solved_onset <= 500"])[0].measured == OnsetQuantile("solved")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": []}, "objective"),
        ({"objective": [*TWO, Rate("solve")]}, "objective.outcome"),
        ({"objective": OnsetQuantile("stuck")}, "objective.outcome"),
        ({"constraints": ["stuck_rate < 0.1"]}, "constraints"),
        ({"constraints": ["solve_rate >= 0.1"]}, "constraints"),
        ({"objective": OnsetQuantile("solved"), "pruner": Pruner("median"), "prune_anyway": True}, "pruner"),
        ({"constraints": "stuck_rate <= 0.1", "sampler": "boundary"}, "sampler"),
        ({"objective": TWO, "pruner": Pruner("median"), "prune_anyway": True}, "pruner"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(sweep(**changes), CategoryPairsParameters)
    assert str(raised.value).startswith(message)


losses = st.none() | st.floats(0, allow_nan=False)
trainings = st.lists(
    st.tuples(st.sampled_from(["solved", "runaway", "diverged"]), st.booleans(), losses), min_size=1, max_size=30
)


@given(trainings, st.floats(0, 1), st.sampled_from(["minimize", "maximize"]))
def test_it_is_finite_and_between_the_extremes(
    rows: list[tuple[str, bool, float | None]], quantile: float, direction: Literal["minimize", "maximize"]
) -> None:
    outcome, stuck, loss = zip(*rows, strict=True)
    most_stuck = objective_value(StuckRate(direction="maximize"), outcome, stuck, loss)
    assert most_stuck == pytest.approx(sum(stuck) / len(stuck))
    assert most_stuck <= objective_value(StuckRate(), outcome, stuck, loss) <= 1
    value = objective_value(LossQuantile(quantile=quantile, direction=direction), outcome, stuck, loss)
    assert math.isfinite(value)
    assert value in {-WORST_LOSS, WORST_LOSS} | {min(each, WORST_LOSS) for each in loss if each is not None}


def test_a_rate_counts_the_trainings_that_end_with_its_outcome() -> None:
    outcome, stuck = ["solved", "solved", "marginal", "plateau", "diverged"], [False, False, True, False, False]
    loss = [0.0] * 5

    def value(objective: Rate) -> float:
        return objective_value(objective, outcome, stuck, loss)

    assert value(Rate("solved")) == 0.4
    assert value(Rate("stuck")) == value(Rate("marginal")) == 0.2
    assert value(Rate("diverged")) == 0.2
    # Those that diverged count as the worst: so the sampler keeps away from them.
    assert value(Rate("plateau", direction="minimize")) == 0.4
    assert value(Rate("stuck", direction="minimize")) == objective_value(StuckRate(), outcome, stuck, loss)


def test_an_onset_is_that_of_the_trainings_that_end_so_and_never_that_of_the_others() -> None:
    outcome, onset = ["solved", "solved", "diverged", "plateau"], [10, 30, 5, 0]

    def value(quantile: float) -> float:
        return objective_value(OnsetQuantile("solved", quantile=quantile), outcome, [False] * 4, [0.0] * 4, onset)

    assert [value(quantile) for quantile in (0.25, 0.5, 0.75)] == [10.0, 30.0, NEVER]
