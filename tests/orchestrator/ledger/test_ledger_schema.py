"""The ledger's columns, and the tables that it accepts as rows."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.ledger.schema import conform
from tests.orchestrator.ledger.ledger_rows import CURVES, TRAININGS, training_rows


@pytest.mark.slow
@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), min_size=1))
def test_a_double_is_finite_or_null(values: list[float | None]) -> None:
    finite = [value if value is not None and math.isfinite(value) else None for value in values]
    rows = [{"trial": trial, "replicate": 0, "eval_loss": value} for trial, value in enumerate(values)]
    assert conform(training_rows("p", *rows), TRAININGS)["eval_loss"].to_pylist() == finite

    points = [{"training_id": "t", "trial": 0, "replicate": 0, "step": 0, "metric": "loss", "value": v} for v in values]
    curves = conform(pa.Table.from_pylist(points, CURVES), CURVES)
    assert curves["value"].to_pylist() == [value for value in finite if value is not None]
