"""`open_sweep`: tables in three formats, SQL, several sweeps as one, and the answers on a ledger."""

from pathlib import Path

import numpy as np
import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate, rate_label
from attnsweep.search_spaces import Float, Sequential
from attnsweep.workloads.errors import UserError
from tests.orchestrator.analysis.conftest import random_trials
from tests.orchestrator.drawn import bands, intervals, legend, lines, tick_labels, unreadable
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.present import present
from tests.refusals import refused


@pytest.mark.slow
def test_tables_come_in_three_formats(sweep: SweepData) -> None:
    assert sweep.trainings().num_rows == len(sweep.trainings("pandas")) == sweep.trainings("polars").height == 160
    assert sweep.trials().num_rows == 40
    assert (sweep.curves().num_rows, sweep.heads().num_rows) == (160 * 10, 0)
    assert sweep.sql("select count(*) as n from trainings where stuck").to_pylist() == [
        {"n": sweep.stuck_rates().overall.k}
    ]
    with refused("format", UserError):
        sweep.trainings("csv")  # type: ignore[arg-type]
    with refused("SQL", UserError):
        sweep.sql("select nothing")


@pytest.mark.slow
def test_rates_are_those_of_the_summary_and_by_any_parameter(sweep: SweepData) -> None:
    rates = sweep.stuck_rates()
    assert [each.parameter for each in rates.by_parameter] == ["init_sigma", "learning_rate"]
    assert rates.to_arrow().num_rows == 1 + 4 + 2
    (other,) = sweep.stuck_rates(by=["optimizer"]).by_parameter
    assert sweep.stuck_rates(by="optimizer").by_parameter == (other,)
    assert [(each.label, each.n_trials, each.rate) for each in other.bins] == [("sgd", 40, rates.overall)]
    with refused("parameter", UserError):
        sweep.stuck_rates(by=["sigma"])
    sigma, rate = (figure := rates.plot()).axes
    for panel, each in zip((sigma, rate), rates.by_parameter, strict=True):
        assert [row[1:] for row in intervals(panel)] == [pytest.approx(one.rate.interval) for one in each.bins]
    assert figure.get_suptitle() == f"stuck rate {rate_label(rates.overall)}"
    assert unreadable(figure) == []
    (alone,) = sweep.stuck_rates(by=[]).plot().axes
    assert [row[1:] for row in intervals(alone)] == [pytest.approx(rates.overall.interval)]
    assert (tick_labels(alone, "x"), alone.get_ylabel()) == (["all trials"], "stuck rate")


@pytest.mark.slow
def test_outcomes_add_up_in_each_group(sweep: SweepData) -> None:
    found = sweep.outcomes(by="init_sigma")
    assert found.groups == ("1e-4..1e-3", "1e-3..1e-2", "1e-2..1e-1", "1e-1..1e0")
    assert [sum(present(rate.share) for rate in rates) for rates in found.rates] == pytest.approx([1.0] * 4)
    counts = sweep.sql(
        "select trial, count(*)::int as n, count(*) filter (outcome = 'solved')::int as k from trainings group by 1"
    )
    (rates,) = sweep.outcomes().rates
    expected = pooled_rate([(row["n"], row["k"]) for row in counts.to_pylist()])
    assert rates[sweep.outcomes().outcomes.index("solved")] == expected
    (panel,) = (figure := found.plot()).axes
    drawn = [row[1:] for row in intervals(panel)]
    assert drawn == [pytest.approx(rate.interval) for group in found.rates for rate in group]
    assert tick_labels(panel, "x") == list(found.outcomes)
    assert legend(figure) == list(found.groups)
    assert unreadable(figure) == []


@pytest.mark.slow
def test_what_ended_otherwise_never_comes_and_the_curve_ends_at_the_rate(sweep: SweepData) -> None:
    (rates,) = sweep.outcomes().rates
    for outcome, rate in zip(sweep.outcomes().outcomes, rates, strict=True):
        (curve,) = sweep.onset(outcome).curves
        assert curve.curve[-1].share == pytest.approx(rate.share)
        assert curve.curve[-1].low == pytest.approx(rate.low)
        assert (curve.n_came, curve.median_step, curve.curve[-1].step) == (rate.k, 4.0, 8)
    by = sweep.onset("solved", by="init_sigma")
    assert sum(curve.n_trainings for curve in by.curves) == 160
    assert by.to_arrow().column_names == ["group", "step", "share", "most", "low", "high"]
    (panel,) = (figure := by.plot()).axes
    assert (panel.get_xlabel(), panel.get_title()) == ("optimizer steps", "solved: 95% bands")
    assert lines(panel) == [[[point.step, point.share] for point in curve.curve] for curve in by.curves]
    # The corners of a band drawn in steps.
    ends = [{(point.step, end) for point in curve.curve[:-1] for end in (point.low, point.high)} for curve in by.curves]
    assert all(end <= band for end, band in zip(ends, bands(panel)[::2], strict=True))
    counted = [f"{each.label} ({each.n_trainings} trainings, {each.n_trials} trials)" for each in by.curves]
    assert legend(figure) == counted
    assert unreadable(figure) == []
    with refused("outcome", UserError):
        sweep.onset("stuck")


@pytest.mark.scale
@pytest.mark.slow
def test_a_phase_diagram_goes_by_shares_where_trials_chose_how_many_they_needed(tmp_path: Path) -> None:
    found = []
    for name, extra in (("few", 0), ("many", 2)):
        spec = small_sweep(name, trials=40, replicates=Sequential(width=0.3, at_most=12))
        trials = [
            [row | {"replicate": 4 * copy + row["replicate"]} for copy in range(1 + at % 2 * extra) for row in rows]
            for at, rows in enumerate(random_trials(40))
        ]
        sweep_on_disk(tmp_path / name, spec, *trials)
        found.append(open_sweep(tmp_path / name).phase_diagram("init_sigma", "learning_rate"))
    assert found[1].trials.n.sum() == 2 * found[0].trials.n.sum()
    few, many = (np.array(each.at(1e-3, 0.01)) for each in found)
    # The weak prior and the least variance of a band go by the number of trainings.
    assert many[0] == pytest.approx(few[0], abs=1e-3)
    assert many == pytest.approx(few, abs=0.01)


@pytest.mark.slow
def test_several_sweeps_are_pooled_alike_in_any_order(tmp_path: Path) -> None:
    """Each trial counts once in bins too, if one of the sweeps has sequential replicates."""
    for name, replicates, sizes in (("fixed", 4, (4, 4)), ("chosen", Sequential(width=0.3, at_most=16), (8, 16))):
        trials = [
            trial_rows(at, [end] * n) for at, (end, n) in enumerate(zip(("solved", "marginal"), sizes, strict=True))
        ]
        sweep_on_disk(tmp_path / name, small_sweep(name, trials=2, replicates=replicates), *trials)
    for order in (("fixed", "chosen"), ("chosen", "fixed")):
        rates = open_sweep(*(tmp_path / name for name in order)).stuck_rates(by=["init_sigma"])
        assert rates.overall.share == 0.5
        assert [each.rate.share for each in rates.by_parameter[0].bins if each.n_trials] == [0.5]


@pytest.mark.scale
@pytest.mark.slow
def test_several_sweeps_are_read_as_one(tmp_path: Path, sweep: SweepData) -> None:
    wider = {"init_sigma": Float(low=1e-5, high=1.0, log=True), "learning_rate": 0.1, "n_steps": 8}
    sweep_on_disk(tmp_path / "two", small_sweep("two", space=wider), *random_trials(10, param_optimizer="adam"))
    path = sweep.directories[0].place
    both = open_sweep(path, tmp_path / "two")
    assert both.trainings().num_rows == 200
    assert both.trials()["trial"].to_pylist() == [*range(40), *range(1_000_000, 1_000_010)]
    assert both.sql("select count(*) as n from curves join trainings using (trial, replicate)").to_pylist() == [
        {"n": 2000}
    ]
    rates = {each.parameter: each for each in both.stuck_rates().by_parameter}
    assert [(each.label, each.n_trials) for each in rates["optimizer"].bins] == [("adam", 10), ("sgd", 40)]
    assert sum(each.n_trials for each in rates["init_sigma"].bins) == 50
    assert len(both.phase_diagram("init_sigma", "learning_rate").trials.n) == 50
    with pytest.raises(UserError, match="expected different sweeps, each named once"):
        open_sweep(path, path)
    sweep_on_disk(tmp_path / "t", small_sweep("t", workload="translation"))
    with pytest.raises(UserError, match="expected sweeps of the workload category_pairs"):
        open_sweep(path, tmp_path / "t")
    with pytest.raises(UserError, match="DIR: got "):
        open_sweep(tmp_path / "nowhere")
