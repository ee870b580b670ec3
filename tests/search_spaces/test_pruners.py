"""Pruners by name and arguments: those of the installed Optuna, and refused where they would mislead."""

import inspect
from typing import Any

import optuna
import pytest

from attnsweep import (
    HyperbandPruner,
    LossQuantile,
    MedianPruner,
    PatientPruner,
    PercentilePruner,
    Sequential,
    StuckRate,
    SuccessiveHalvingPruner,
    Sweep,
    ThresholdPruner,
)
from attnsweep.search_spaces.model import SpecModel
from attnsweep.search_spaces.pruners import make_pruner
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=4, objective=LossQuantile())
PRUNERS: list[SpecModel] = [
    MedianPruner(n_startup_trials=3),
    PercentilePruner(percentile=25.0),
    HyperbandPruner(min_resource=8, max_resource=200),
    SuccessiveHalvingPruner(min_resource=8),
    ThresholdPruner(upper=2.0),
    PatientPruner(patience=3, wrapped_pruner=MedianPruner()),
]


@pytest.mark.parametrize("pruner", PRUNERS, ids=lambda pruner: pruner.kind)
def test_a_pruner_is_optunas_with_its_arguments_and_defaults(pruner: Any) -> None:
    made = make_pruner(pruner)
    assert type(made).__name__ == type(pruner).__name__
    signature = inspect.signature(type(made)).parameters
    fields = {name: field for name, field in type(pruner).model_fields.items() if name != "kind"}
    assert set(fields) == set(signature)
    for name, field in fields.items():
        # Optuna has no default for the wrapped pruner.
        if not field.is_required() and name != "wrapped_pruner":
            assert field.default == signature[name].default, name
    spec = SWEEP.but(pruner=pruner)
    assert Sweep.from_json(spec.to_json()) == spec
    assert spec.pruner == pruner


@pytest.mark.parametrize(
    ("pruner", "subject"),
    [
        ("medain", "pruner"),
        ({"kind": "median", "n_warmup": 3}, "n_warmup"),
        ({"kind": "percentile"}, "percentile"),
        (optuna.pruners.MedianPruner(), "pruner"),
    ],
)
def test_another_pruner_is_refused(pruner: object, subject: str) -> None:
    with refused(subject, SpecError):
        SWEEP.but(pruner=pruner)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"pruner": PercentilePruner(percentile=200.0)}, "pruner.percentile"),
        ({"pruner": "median", "objective": StuckRate()}, "pruner"),
        ({"pruner": "median", "replicates": Sequential()}, "replicates"),
    ],
)
def test_a_sweep_that_pruning_would_mislead_is_refused(changes: dict[str, Any], subject: str) -> None:
    with refused(subject, SpecError):
        check_sweep(SWEEP.but(**changes), CategoryPairs.parameters)


def test_a_stuck_rate_is_pruned_on_demand() -> None:
    spec = SWEEP.but(pruner="median", objective=StuckRate(), prune_anyway=True)
    check_sweep(spec, CategoryPairs.parameters)
    assert Sweep.from_json(spec.to_json()).prune_anyway
