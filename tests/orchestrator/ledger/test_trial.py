"""The rules of a trial, on made-up rows."""

import pyarrow as pa
import pytest

from attnsweep.orchestrator.ledger.trial import EndedTrainings, complete_among, ended_trainings
from attnsweep.search_spaces.measured import StuckRate
from attnsweep.search_spaces.replication import Sequential

Row = tuple[int, int, str, bool, float | None]
COLUMNS = ("trial", "replicate", "outcome", "stuck", "eval_loss")


def table(*rows: Row) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    kinds = (pa.int32(), pa.int32(), pa.string(), pa.bool_(), pa.float64())
    made = pa.table({name: pa.array(each, kind) for name, each, kind in zip(COLUMNS, columns, kinds, strict=True)})
    return made.append_column("onset_step", pa.nulls(len(made), pa.int32()))


def test_a_trial_without_judged_trainings_has_no_value() -> None:
    trials = ended_trainings(table((0, 0, "failed", False, None), (1, 0, "solved", False, 0.0)))
    assert trials[0].value(StuckRate()) is None
    assert EndedTrainings().value(StuckRate()) is None
    assert trials[1].value(StuckRate()) == 0.0


@pytest.mark.parametrize("rule", [2, Sequential(batch=2, at_most=2)])
def test_a_training_recorded_twice_counts_once(rule: int | Sequential) -> None:
    twice = [(0, 0, "solved", False, 0.0)] * 2
    assert complete_among(table(*twice), rule) == []
    assert complete_among(table(*twice, (0, 1, "marginal", True, 0.5)), rule) == [0]
