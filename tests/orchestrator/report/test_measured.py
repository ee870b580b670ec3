"""A workload's own metrics by outcome: which are drawn, and of whom."""

from pathlib import Path

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.measured import MOST_METRICS, read_metric_curves
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows


def test_diverged_trainings_and_what_every_workload_has_are_not_drawn(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"), trial_rows(0, ["solved", "diverged"] * 2))
    with Ledger(directory.place).reading() as connection:
        for name in ("accuracy", *(f"m{n}" for n in range(9)), "loss"):
            connection.execute(
                "create temp table if not exists own as select trial, replicate, 0 as step, '' as metric, 0.0 as value"
                " from trainings limit 0"
            )
            connection.execute(
                "insert into own select trial, replicate, step, ?, step from trainings, range(0, 9, 4) as t(step)",
                [name],
            )
        connection.unregister("curves")
        connection.execute("create temp view curves as from own")
        drawn = read_metric_curves(connection)
    assert [each.metric for each in drawn] == ["accuracy", *(f"m{n}" for n in range(MOST_METRICS - 1))]
    assert {curve.outcome for each in drawn for curve in each.curves} == {"solved"}
