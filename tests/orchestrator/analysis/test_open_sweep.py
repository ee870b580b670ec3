"""`open_sweep`: SQL, several sweeps as one, and the answers on a ledger."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnsweep import open_sweep, plot_onset, plot_phase
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooled_rate
from attnsweep.search_spaces import Categorical, Float
from attnsweep.workloads.errors import UserError
from tests.orchestrator.analysis.conftest import random_trials
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused

ENDS = ["solved", "degenerate_zero", "marginal", "failed"]
BY = ("init_sigma", "n_categories")


def _trials(n: int) -> list[Rows]:
    """Degenerate zeros only at small sigma and 4 categories."""
    rng, trials = np.random.default_rng(1), []
    for number in range(n):
        sigma, categories = float(10 ** rng.uniform(-4, 0)), (4, 8)[number % 2]
        zero = 0.7 if sigma < 0.01 and categories == 4 else 0.1
        trials.append(trial_rows(
            number, rng.choice(ENDS, 4, p=[0.7 - zero, zero, 0.2, 0.1]).tolist(), param_init_sigma=sigma,
            param_n_categories=categories, param_learning_rate=0.01, param_n_steps=8, onset_step=4, before_onset_step=3,
        ))  # fmt: skip
    return trials


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    path = tmp_path_factory.mktemp("sweeps") / "one"
    space = {**small_sweep("s").space, "n_categories": Categorical(choices=(4, 8))}
    sweep_on_disk(path, small_sweep("one", trials=100, space=space), *_trials(100))
    return open_sweep(path)


def _counts(sweep: SweepData, condition: str, where: str = "true") -> list[tuple[int, int]]:
    rows = sweep.sql(
        f"select count(*)::int as n, count(*) filter ({condition})::int as k from trainings"
        f" where outcome <> 'failed' and {where} group by trial order by trial"
    )
    return [(row["n"], row["k"]) for row in rows.to_pylist()]


@pytest.mark.slow
def test_tables_and_sql(sweep: SweepData) -> None:
    tables = (sweep.trainings(), sweep.trials(), sweep.curves(), sweep.heads())
    assert [table.num_rows for table in tables] == [160, 40, 160 * 10, 0]
    assert sweep.sql("select count(*) as n from trainings where stuck")["n"].to_pylist() == [
        sweep.stuck_rates()["k"][0].as_py()
    ]
    with refused("SQL", UserError):
        sweep.sql("select nothing")


@pytest.mark.slow
def test_rates_by_any_parameter(sweep: SweepData) -> None:
    found = sweep.stuck_rates()
    overall, *bins = found.to_pylist()
    assert (overall["parameter"], overall["n_trials"], overall["n"]) == (None, 40, 160)
    assert [row["parameter"] for row in bins] == ["init_sigma"] * 4 + ["learning_rate"] * 2
    _, other = sweep.stuck_rates(by="optimizer").to_pylist()
    assert (other["bin"], other["n_trials"], Rate.of(other)) == ("sgd", 40, Rate.of(overall))
    assert sweep.stuck_rates(by=["init_sigma"], bins=3).num_rows == 4


@pytest.mark.slow
@pytest.mark.parametrize(("given", "condition"), [({}, "stuck"), ({"outcome": "solved"}, "outcome = 'solved'")])
def test_the_rate_of_an_outcome_is_that_of_its_trainings(
    plane: SweepData, given: dict[str, Any], condition: str
) -> None:
    overall, *bins = plane.stuck_rates(by=BY, **given).to_pylist()
    assert Rate.of(overall) == pooled_rate(_counts(plane, condition))
    [one] = [row for row in bins if row["bin"] == "1e-3..1e-2"]
    inside = _counts(plane, condition, "param_init_sigma between 1e-3 and 1e-2")
    assert (Rate.of(one), one["n_trials"]) == (pooled_rate(inside), len(inside))


@pytest.mark.slow
def test_outcomes_add_up_in_each_cell(plane: SweepData) -> None:
    rows = plane.outcomes(by=BY).to_pylist()
    assert len(rows) == 8 * 3
    cells = {(row["init_sigma"], row["n_categories"]) for row in rows}
    for cell in cells:
        assert sum(row["share"] for row in rows if (row["init_sigma"], row["n_categories"]) == cell) == pytest.approx(1)
    [one] = [row for row in rows if [*row.values()][:3] == ["1e-4..1e-3", "4", "solved"]]
    inside = "param_init_sigma < 1e-3 and param_n_categories = 4"
    assert Rate.of(one) == pooled_rate(_counts(plane, "outcome = 'solved'", inside))


@pytest.mark.slow
def test_a_diagram_is_of_one_outcome(plane: SweepData) -> None:
    zero = plane.phase_diagram(*BY, outcome="degenerate_zero")
    assert zero.trials.k.sum() == sum(k for _, k in _counts(plane, "outcome = 'degenerate_zero'"))
    assert "logit P(degenerate zero)" in zero.note
    assert zero.at(1e-3, 4.0)[0] > zero.at(0.5, 8.0)[0]
    assert plot_phase(zero).axes[0].get_xscale() == "log"
    assert "end as overfit" in plane.phase_diagram(*BY, outcome="overfit").note


@pytest.mark.slow
def test_what_ended_otherwise_never_comes_and_the_curve_ends_at_the_rate(sweep: SweepData) -> None:
    for rate in sweep.outcomes().to_pylist():
        [row] = sweep.onset(rate["outcome"]).to_pylist()
        end = row["curve"][-1]
        assert (end["share"], end["low"]) == pytest.approx((rate["share"], rate["low"]))
        assert (row["n_came"], row["median_step"], end["step"]) == (rate["k"], 4, 8)
    by = sweep.onset("solved", by="init_sigma")
    assert sum(by["n_trainings"].to_pylist()) == 160
    [panel] = plot_onset(by).axes
    drawn = [np.asarray(line.get_xydata()).tolist() for line in panel.get_lines()]
    assert drawn == [[[point["step"], point["share"]] for point in row["curve"]] for row in by.to_pylist()]


def test_roles_emerge_by_layer_and_parameter(tmp_path: Path) -> None:
    trials = [
        trial_rows(n, ["plateau"] * 3, param_init_sigma=(1e-3, 0.5)[n % 2], n_steps=8 if n else 4, param_n_steps=8)
        for n in range(8)
    ]
    early, late = {(0, 0): ".pppp", (1, 0): "..ppp"}, {(0, 0): "..pp.", (1, 0): "...pp"}
    heads = [row for rows in trials for each in rows for row in head_rows(each, late if each["trial"] % 2 else early)]
    sweep_with_heads(tmp_path / "r", small_sweep("r", workload="translation"), trials, heads)
    data = open_sweep(tmp_path / "r")
    found = data.emergence("positional", by=["layer", "init_sigma"]).to_pylist()
    assert [(row["layer"], row["init_sigma"], row["half_step"]) for row in found] == [
        ("encoder self", "1e-3..1e-2", 1),
        ("encoder self", "1e-1..1e0", 2),
        ("decoder self", "1e-3..1e-2", 2),
        ("decoder self", "1e-1..1e0", 4),
    ]
    one = data.emergence("positional", by="init_sigma", layer=1)
    assert one["half_step"].to_pylist() == [2, 4]
    with pytest.raises(UserError, match=r"role: got 'positionl', .*; did you mean positional?"):
        data.emergence("positionl")


@pytest.mark.slow
def test_several_sweeps_are_read_as_one(tmp_path: Path, sweep: SweepData) -> None:
    wider = {"init_sigma": Float(low=1e-5, high=1.0, log=True), "learning_rate": 0.1, "n_steps": 8}
    sweep_on_disk(tmp_path / "two", small_sweep("two", space=wider), *random_trials(10, param_optimizer="adam"))
    path = sweep.directories[0].place
    both = open_sweep(path, tmp_path / "two")
    assert both.trainings().num_rows == 200
    assert both.trials()["trial"].to_pylist() == [*range(40), *range(1_000_000, 1_000_010)]
    rows = both.stuck_rates().to_pylist()
    assert [(row["bin"], row["n_trials"]) for row in rows if row["parameter"] == "optimizer"] == [
        ("adam", 10),
        ("sgd", 40),
    ]
    assert sum(row["n_trials"] for row in rows if row["parameter"] == "init_sigma") == 50
    with pytest.raises(UserError, match="expected different sweeps, each named once"):
        open_sweep(path, path)
    sweep_on_disk(tmp_path / "t", small_sweep("t", workload="translation"))
    with pytest.raises(UserError, match="expected sweeps of the workload category_pairs"):
        open_sweep(path, tmp_path / "t")


MISTAKES: dict[str, Callable[[SweepData], object]] = {
    "outcome: got 'marginl', expected one of stuck, solved, .*; did you mean marginal?": (
        lambda sweep: sweep.stuck_rates(outcome="marginl")
    ),
    "parameter: got 'n_categores', .*; did you mean n_categories?": (
        lambda sweep: sweep.phase_diagram("init_sigma", "n_categores")
    ),
    "by: got 'a,b,c', expected one parameter, or two": lambda sweep: sweep.outcomes(by=["a", "b", "c"]),
    "outcome: got 'solvd', .*; did you mean solved?": lambda sweep: sweep.onset("solvd", by=BY),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named_with_what_was_meant(plane: SweepData, message: str) -> None:
    with pytest.raises(UserError, match=message):
        MISTAKES[message](plane)
