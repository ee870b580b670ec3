"""Pruners by name and arguments: those of the installed Optuna, and refused where they would mislead."""

from typing import Any

import optuna
import pytest

from attnsweep import LossQuantile, Pruner, Sequential, StuckRate, Sweep
from attnsweep.search_spaces.pruners import make_pruner
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=4, objective=LossQuantile())
PRUNERS = {
    "MedianPruner": Pruner("median", n_startup_trials=3),
    "PercentilePruner": Pruner("percentile", percentile=25.0),
    "HyperbandPruner": Pruner("hyperband", min_resource=8, max_resource=200),
    "SuccessiveHalvingPruner": Pruner("successive_halving", min_resource=8),
    "ThresholdPruner": Pruner("threshold", upper=2.0),
    "PatientPruner": Pruner("patient", patience=3, wrapped_pruner={"kind": "median"}),
}


@pytest.mark.parametrize("name", PRUNERS)
def test_a_pruner_is_optunas_and_stored_without_loss(name: str) -> None:
    assert type(make_pruner(PRUNERS[name])).__name__ == name
    spec = SWEEP.but(pruner=PRUNERS[name])
    assert Sweep.from_json(spec.to_json()) == spec
    assert spec.pruner == PRUNERS[name]


@pytest.mark.parametrize(
    ("pruner", "subject"),
    [
        ("medain", "kind"),
        ({"kind": "median", "n_warmup": 3}, "pruner.median"),
        ({"kind": "percentile"}, "pruner.percentile"),
        ({"kind": "percentile", "percentile": 200.0}, "pruner.percentile"),
        (optuna.pruners.MedianPruner(), "pruner"),
    ],
)
def test_another_pruner_is_refused(pruner: object, subject: str) -> None:
    with refused(subject, SpecError):
        SWEEP.but(pruner=pruner)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"pruner": "median", "objective": StuckRate()}, "pruner"),
        ({"pruner": "median", "replicates": Sequential()}, "replicates"),
    ],
)
def test_a_sweep_that_pruning_would_mislead_is_refused(changes: dict[str, Any], subject: str) -> None:
    with refused(subject, SpecError):
        check_sweep(SWEEP.but(**changes), CategoryPairs.parameters)
    if subject == "pruner":
        check_sweep(SWEEP.but(**changes, prune_anyway=True), CategoryPairs.parameters)
