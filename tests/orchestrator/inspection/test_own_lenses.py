"""A user's own role, map, words and verdicts are seen by `heads`, `why` and the report as shipped ones are."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnsweep import Categorical, Ledger, role_rates
from attnsweep.orchestrator.inspection.heads import heads_of
from attnsweep.orchestrator.inspection.shown_heads import maps_of
from attnsweep.orchestrator.inspection.why import why
from attnsweep.orchestrator.report.sweep_report import read_sweep_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.lenses import lenses_of
from attnsweep.workloads.registry import load_workload, registered_names
from tests.orchestrator.trained_sweep import trained_sweep

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "first_word.py"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    spec = load_sweep(str(EXAMPLE))
    space: dict[str, Any] = {**spec.space, "n_steps": Categorical((1, 100)), "init_sigma": 1e-4}
    spec = spec.but(space=space, sampler="grid", trials=2, replicates=1)
    return trained_sweep(tmp_path_factory.mktemp("own") / "sweep", spec)


@pytest.mark.slow
def test_own_roles_maps_words_and_verdicts_are_shown(sweep: SweepDirectory) -> None:
    rows = {row["param_n_steps"]: row for row in Ledger(sweep.place).trainings().to_pylist()}
    ended = {steps: (row["outcome"], row["outcome_detail"]) for steps, row in rows.items()}
    assert ended == {1: ("degenerate_zero", "zero"), 100: ("solved", None)}
    names = {steps: f"{row['trial']}/{row['replicate']}" for steps, row in rows.items()}

    found = heads_of(sweep, names[100])
    (head,) = found.heads
    assert (head.role, [*head.scores]) == ("first", ["first_share"])
    assert {*found.maps.layers[0].keys} <= {*"abcd"}
    assert head.weights_QK[:, 0].mean() == pytest.approx(head.scores["first_share"])

    told = json.loads(why(sweep, names[1], "sweep").to_json())
    assert {word["part"] for word in told["words"]} == {"mean", "current", "rest"}

    report = read_sweep_report(sweep)
    titles = {layer.heads[0].title.partition(",")[0] for maps in maps_of(report, 2) for layer in maps.layers}
    assert titles == {"0: none", "0: first"}
    with Ledger(sweep.place).connect() as connection:
        assert {each.role for each in role_rates(connection, sweep.spec)} == {"first"}


def test_every_shipped_workload_has_its_lenses() -> None:
    assert all(lenses_of(load_workload(name)) for name in registered_names())


def test_a_subclass_keeps_its_heads_alone() -> None:
    class Changed(CategoryPairs):
        """It may have another loss."""

    own, inherited = lenses_of(CategoryPairs()), lenses_of(Changed())
    assert inherited.maps is own.maps
    assert own.loss is not None
    assert inherited.loss is None


def test_lenses_of_another_kind_are_refused() -> None:
    class Wrong(CategoryPairs):
        lenses = ("attention",)

    with pytest.raises(SpecError, match=r"category_pairs\.lenses: got .*, expected attnsweep\.Lenses"):
        lenses_of(Wrong())
