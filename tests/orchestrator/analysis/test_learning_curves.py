"""Learning curves of trainings that are probed at many steps."""

import duckdb

from attnsweep.orchestrator.analysis.learning_curves import quartile_curves


def test_many_steps_are_grouped_four_to_a_doubling() -> None:
    connection = duckdb.connect()
    connection.execute(
        "create table trainings as select 0 as trial, 0 as replicate, 'plateau' as outcome, null::int as diverged_step"
    )
    connection.execute(
        "create table curves as select 0 as trial, 0 as replicate, 'eval_loss' as metric, step, step::double as value "
        "from range(0, 301) as steps(step)"
    )
    points = quartile_curves(connection, "outcome")["plateau"]
    steps = [point.step for point in points]
    assert steps[:8] == [*range(8)]
    assert steps[8:20:4] == [8, 16, 32]
    assert steps[-4:] == [153, 182, 216, 256]
    # Each at the last probe of its group.
    assert points[0].median == 0.0
    assert points[-1].median == 300.0
