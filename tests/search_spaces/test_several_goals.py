"""Several objectives, and constraints: how they are written, which samplers take them, and what these draw."""

import json
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage

from attnsweep import Float, LossQuantile, MedianPruner, OnsetQuantile, Rate, StuckRate, Sweep
from attnsweep.orchestrator.running.study import new_trial
from attnsweep.search_spaces.batched_tpe import BatchedTPESampler
from attnsweep.search_spaces.measured import read_constraints
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.search_spaces.yaml_text import read_yaml
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
    assert Sweep.from_json(json.dumps(read_yaml(spec.to_yaml()))) == spec
    assert sweep(constraints="stuck_rate <= 0.1").constraints == spec.constraints
    assert sweep(objective=["stuck_rate", {"kind": "rate", "outcome": "solved"}]).objectives == (StuckRate(), TWO[0])


def test_a_sweep_with_one_objective_has_the_sha256_of_earlier_versions() -> None:
    spec = sweep(objective=Rate("solved"))
    assert sweep(objective=[Rate("solved")]) == spec
    assert "constraints" not in spec.to_json()
    assert json.loads(spec.to_json())["objective"] == {"kind": "rate", "outcome": "solved", "direction": "maximize"}


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
        ({"objective": []}, "objective: got (), expected at least one value; give one, or leave it out"),
        ({"objective": ["stuck_rate", "stuck"]}, "objective.1: got {'kind': 'stuck'}, expected a value, or one of the"),
        (
            {"objective": ["stuck_rate", "stuck_rate"]},
            "objective: got 'the objective stuck_rate, given twice', expected each objective once; remove",
        ),
        (
            {"objective": [*TWO, Rate("solve")]},
            "objective.outcome: got 'solve', expected an outcome of the workload: solved, ",
        ),
        (
            {"constraints": ["stuck_rate < 0.1"]},
            "constraints: got 'stuck_rate < 0.1', expected texts such as",
        ),
        (
            {"constraints": ["stuck <= 0.1"]},
            "constraints: got 'stuck <= 0.1', expected texts such as",
        ),
        (
            {"constraints": ["solve_rate >= 0.1"]},
            "constraints: got 'solve', expected an outcome of the workload: solved, ",
        ),
        (
            {"constraints": ["stuck_rate <= 1"] * 2},
            "constraints: got 'stuck_rate <= 1', expected each constraint once",
        ),
        (
            {"objective": OnsetQuantile("stuck")},
            "objective.outcome: got 'stuck', expected an outcome of the workload: solved, ",
        ),
        ({"constraints": ["solved_onset >= 5"]}, "constraints: got 'solved_onset >= 5', expected texts such as"),
        (
            {"objective": OnsetQuantile("solved"), "pruner": MedianPruner(), "prune_anyway": True},
            "pruner: got 'the pruner median with the objective onset of solved', expected an objective whose"
            " value is known before a",
        ),
        ({"constraints": 0.1}, "constraints: got 0.1, expected a valid tuple"),
        (
            {"objective": TWO, "sampler": "cmaes"},
            "sampler: got 'the sampler cmaes with several objectives', expected a sampler that"
            " supports several objectives and constraints: tpe, nsga2, random,"
            " qmc, grid; use sampler=tpe, or name one objective",
        ),
        (
            {"constraints": "stuck_rate <= 0.1", "sampler": "boundary"},
            "sampler: got 'the sampler boundary with constraints', expected a sampler that"
            " supports several objectives and constraints: tpe, nsga2, random, qmc,"
            " grid; use sampler=tpe, or drop the constraints",
        ),
        (
            {"objective": TWO, "pruner": MedianPruner(), "prune_anyway": True},
            "pruner: got 'the pruner median with several objectives', expected a sweep without a pruner, because"
            " pruners compare trials by a single objective; remove the pruner, or name one objective",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_sweep(sweep(**changes), CategoryPairsParameters)
    assert str(raised.value).startswith(message)


def test_the_first_trial_of_a_batch_is_optunas_own_with_two_objectives_and_a_constraint() -> None:
    """With more than 250 trials, of which Optuna takes more for the better ones where there are several objectives."""
    space: dict[str, BaseDistribution] = {name: FloatDistribution(0.0, 1.0) for name in ("x", "y")}
    rng = TPESampler(seed=1)._rng.rng
    ended = []
    for x, y in rng.uniform(size=(300, 2)):
        values, excess = [(x - 0.3) ** 2 + y, (x - 0.6) ** 2 - y], {"a": 0.2 - x}
        ended.append(
            optuna.trial.create_trial(params={"x": x, "y": y}, distributions=space, values=values, constraints=excess)
        )
    drawn = []
    for sampler in (BatchedTPESampler(), TPESampler(seed=11, constant_liar=True)):
        if isinstance(sampler, BatchedTPESampler):
            sampler.begin(11)
        storage = InMemoryStorage()
        study = optuna.create_study(storage=storage, directions=["minimize", "maximize"], sampler=sampler)
        study.add_trials(ended)
        trial = new_trial(study, storage)
        drawn.append([trial.suggest_float(name, 0.0, 1.0) for name in space])
    assert drawn[0] == drawn[1]
