"""Questions over two parameters: one outcome over a plane, emergence; also what they refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate
from attnsweep.search_spaces import Categorical
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.vocabulary import OUTCOMES
from tests.orchestrator.drawn import legend, lines, texts, unreadable
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows

ENDS = ["solved", "degenerate_zero", "marginal", "failed"]
SPACE = {**small_sweep("s").space, "n_categories": Categorical(choices=(4, 8))}
BY = ("init_sigma", "n_categories")


def _trials(n: int) -> list[Rows]:
    """Marginal with the detail `mean` or `shift`; degenerate zeros only at small sigma and 4 categories."""
    rng, trials = np.random.default_rng(1), []
    for number in range(n):
        sigma, categories = float(10 ** rng.uniform(-4, 0)), (4, 8)[number % 2]
        zero = 0.7 if sigma < 0.01 and categories == 4 else 0.1
        rows = trial_rows(
            number, rng.choice(ENDS, 4, p=[0.7 - zero, zero, 0.2, 0.1]).tolist(), param_init_sigma=sigma,
            param_n_categories=categories, param_learning_rate=0.01, param_n_steps=8, onset_step=4, before_onset_step=3,
        )  # fmt: skip
        details = {"marginal": ("mean", "shift")[number % 3 == 0], "degenerate_zero": "mean"}
        trials.append([row | {"outcome_detail": details.get(row["outcome"])} for row in rows])
    return trials


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    path = tmp_path_factory.mktemp("sweeps") / "one"
    sweep_on_disk(path, small_sweep("one", trials=100, space=SPACE), *_trials(100))
    return open_sweep(path)


def _counts(sweep: SweepData, condition: str, where: str = "true") -> list[tuple[int, int]]:
    rows = sweep.sql(
        f"select count(*)::int as n, count(*) filter ({condition})::int as k from trainings"
        f" where outcome <> 'failed' and {where} group by trial order by trial"
    )
    return [(row["n"], row["k"]) for row in rows.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ({}, "stuck"),
        ({"outcome": "solved"}, "outcome = 'solved'"),
        ({"outcome": "marginal", "detail": "mean"}, "outcome = 'marginal' and outcome_detail = 'mean'"),
        ({"outcome": "stuck", "detail": "mean"}, "stuck and outcome_detail = 'mean'"),
    ],
)
def test_the_rate_of_an_outcome_is_that_of_its_trainings(
    sweep: SweepData, given: dict[str, Any], condition: str
) -> None:
    found = sweep.stuck_rates(by=BY, **given)
    assert found.overall == pooled_rate(_counts(sweep, condition))
    assert [each.parameter for each in found.by_parameter] == list(BY)
    assert len(found.cells) == 8
    cell = next(each for each in found.cells if each.labels == ("1e-3..1e-2", "8"))
    inside = "param_init_sigma between 1e-3 and 1e-2 and param_n_categories = 8"
    assert cell.rate == pooled_rate(_counts(sweep, condition, inside))
    assert (cell.place, cell.n_trials) == ((1, 1), len(_counts(sweep, condition, inside)))
    rows = found.to_arrow().to_pylist()
    assert len(rows) == 1 + 4 + 2 + 8
    assert rows[-1]["parameter"] == "init_sigma × n_categories"


@pytest.mark.slow
def test_a_diagram_is_of_one_outcome(sweep: SweepData) -> None:
    zero = sweep.phase_diagram(*BY, outcome="degenerate_zero")
    assert zero.trials.k.sum() == sum(k for _, k in _counts(sweep, "outcome = 'degenerate_zero'"))
    assert "logit P(degenerate zero)" in zero.note
    assert zero.at(1e-3, 4.0)[0] > zero.at(0.5, 8.0)[0]
    figure = zero.plot()
    assert figure.axes[0].get_title() == "share of trainings that end as degenerate zero"
    assert unreadable(figure) == []
    assert repr(zero).startswith("PhaseDiagram(share of degenerate zero over init_sigma, n_categories: ")
    none = sweep.phase_diagram(*BY, outcome="overfit")
    assert none.note.startswith("none of ")
    assert "end as overfit" in none.note


@pytest.mark.slow
def test_outcomes_of_two_parameters_are_a_map(sweep: SweepData) -> None:
    found = sweep.outcomes(by=BY)
    assert (found.by, len(found.groups)) == ("init_sigma,n_categories", 8)
    assert found.bins[1] == ("4", "8")
    rows = found.to_arrow().to_pylist()
    assert len(rows) == 8 * 3
    one = next(
        row for row in rows
        if (row["param_init_sigma"], row["param_n_categories"], row["outcome"]) == ("1e-4..1e-3", "4", "solved")
    )  # fmt: skip
    inside = "param_init_sigma < 1e-3 and param_n_categories = 4"
    rate = pooled_rate(_counts(sweep, "outcome = 'solved'", inside))
    assert (one["n"], one["k"], one["low"], one["high"]) == (rate.n, rate.k, rate.low, rate.high)
    (panel,) = (figure := found.plot()).axes
    faces = [to_hex(patch.get_facecolor()) for patch in panel.patches if isinstance(patch, Rectangle)]
    best = [max(zip(found.outcomes, cell, strict=True), key=lambda pair: pair[1].share or 0) for cell in found.rates]
    assert faces == [OUTCOMES[name].colour.lower() for name, _ in best]
    assert set(legend(figure)) == {name.replace("_", " ") for name, _ in best} == {"degenerate zero", "solved"}
    assert texts(panel)[::2] == [f"{rate.share:.2f}" for _, rate in best]
    assert unreadable(figure) == []


@pytest.mark.slow
def test_onset_by_two_parameters_has_curves_and_medians(sweep: SweepData) -> None:
    found = sweep.onset("degenerate_zero", by=BY)
    assert (found.by, len(found.curves)) == ("init_sigma,n_categories", 8)
    rates = {each.labels: each.rate for each in sweep.stuck_rates(by=BY, outcome="degenerate_zero").cells}
    for curve in found.curves:
        rate = rates[curve.labels]
        assert (curve.n_trainings, curve.n_came) == (rate.n, rate.k)
        assert curve.curve[-1].share == pytest.approx(rate.share)
        assert curve.half.step == (4 if curve.curve[-1].share >= 0.5 else None)
        assert curve.half.low == (3 if curve.curve[-1].high >= 0.5 else None)
        assert curve.half.high == (4 if curve.curve[-1].low >= 0.5 else None)
    assert {curve.half.step for curve in found.curves} == {4, None}
    assert found.medians()["half_step"].to_pylist() == [curve.half.step for curve in found.curves]
    assert found.to_arrow().column_names == [
        "group",
        "param_init_sigma",
        "param_n_categories",
        *["step", "share", "most", "low", "high"],
    ]
    assert len(lines(found.plot().axes[0])) == 8


def test_roles_emerge_by_layer_and_parameter_with_a_note_on_early_ends(tmp_path: Path) -> None:
    trials = [
        trial_rows(n, ["plateau"] * 3, param_init_sigma=(1e-3, 0.5)[n % 2], n_steps=8 if n else 4, param_n_steps=8)
        for n in range(8)
    ]
    early, late = {(0, 0): ".pppp", (1, 0): "..ppp"}, {(0, 0): "..pp.", (1, 0): "...pp"}
    heads = [row for rows in trials for each in rows for row in head_rows(each, late if each["trial"] % 2 else early)]
    sweep_with_heads(tmp_path / "r", small_sweep("r", workload="translation"), trials, heads)
    data = open_sweep(tmp_path / "r")
    found = data.emergence("positional", by=["layer", "init_sigma"])
    assert [(each.label, each.half.step) for each in found.curves] == [
        ("encoder self × 1e-3..1e-2", 1),
        ("encoder self × 1e-1..1e0", 2),
        ("decoder self × 1e-3..1e-2", 2),
        ("decoder self × 1e-1..1e0", 4),
    ]
    assert found.note.startswith("3 trainings ended before their step budget and are censored there, ")
    assert found.note in repr(found)
    one = data.emergence("positional", by="init_sigma", layer=1)
    assert [(each.label, each.half.step) for each in one.curves] == [("1e-3..1e-2", 2), ("1e-1..1e0", 4)]
    with pytest.raises(UserError, match=r"role: got 'positionl', .*; did you mean positional?"):
        data.emergence("positionl")


MISTAKES: dict[str, Callable[[SweepData], object]] = {
    "outcome: got 'marginl', expected one of stuck, solved, .*; did you mean marginal?": (
        lambda sweep: sweep.stuck_rates(outcome="marginl")
    ),
    "outcome: got 'failed', expected one of stuck, solved, ": lambda sweep: sweep.stuck_rates(outcome="failed"),
    "detail: got 'men', expected one of mean, shift; did you mean mean?": (
        lambda sweep: sweep.phase_diagram(*BY, outcome="marginal", detail="men")
    ),
    "detail: got 'mean', expected no detail: this outcome has none in this sweep": (
        lambda sweep: sweep.stuck_rates(outcome="solved", detail="mean")
    ),
    "parameter: got 'n_categores', .*; did you mean n_categories?": (
        lambda sweep: sweep.phase_diagram("init_sigma", "n_categores")
    ),
    "by: got 'init_sigma,init_sigma', expected one parameter, or two different parameters": (
        lambda sweep: sweep.outcomes(by=["init_sigma", "init_sigma"])
    ),
    "by: got 'a,b,c', expected one parameter, or two": lambda sweep: sweep.outcomes(by=["a", "b", "c"]),
    "outcome: got 'solvd', .*; did you mean solved?": lambda sweep: sweep.onset("solvd", by=BY),
    "parameter: got 'Learning_Rate', .*; did you mean learning_rate?": (
        lambda sweep: sweep.phase_diagram("init_sigma", "Learning_Rate")
    ),
    "format: got 'panda', .*; did you mean pandas?": lambda sweep: sweep.trials("panda"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named_with_what_was_meant(sweep: SweepData, message: str) -> None:
    with pytest.raises(UserError, match=message):
        MISTAKES[message](sweep)
