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


def test_a_name_alone_is_a_pruner_with_its_defaults_and_none_leaves_the_spec_as_it_was() -> None:
    assert SWEEP.but(pruner="median").pruner == MedianPruner()
    assert SWEEP.but(pruner={"kind": "patient", "patience": 2}).pruner == PatientPruner(patience=2)
    assert "prun" not in SWEEP.to_json()


@pytest.mark.parametrize(
    ("pruner", "words"),
    [
        (
            "medain",
            "pruner: got 'medain', expected a pruner of attnsweep, or the name .*: median, .*; did you mean median",
        ),
        ({"kind": "median", "n_warmup": 3}, "n_warmup: got 3, expected no such field; did you mean n_warmup_steps"),
        ({"kind": "percentile"}, "percentile: .* give percentile"),
        (optuna.pruners.MedianPruner(), 'write pruner="median"'),
    ],
)
def test_another_pruner_is_refused(pruner: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        SWEEP.but(pruner=pruner)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"pruner": PercentilePruner(percentile=200.0)},
            r"pruner.percentile: .*\(Percentile must be between 0 and 100",
        ),
        (
            {"pruner": "median", "objective": StuckRate()},
            "pruner: got 'the pruner median with the objective stuck_rate', .* 12% to 25% were solved.*--prune-anyway",
        ),
        (
            {"pruner": "median", "replicates": Sequential()},
            "replicates: got 'a rule Sequential together with a pruner', expected",
        ),
    ],
)
def test_a_sweep_that_pruning_would_mislead_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        check_sweep(SWEEP.but(**changes), CategoryPairs.parameters)


def test_a_stuck_rate_is_pruned_on_demand() -> None:
    spec = SWEEP.but(pruner="median", objective=StuckRate(), prune_anyway=True)
    check_sweep(spec, CategoryPairs.parameters)
    assert Sweep.from_json(spec.to_json()).prune_anyway
