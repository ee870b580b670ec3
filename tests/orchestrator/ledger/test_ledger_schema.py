"""The ledger's columns, and the tables that it accepts as rows."""

import math
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
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


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda rows: rows.drop_columns(["seed"]),
            r"the columns \['seed'\] are missing and the columns \[\] are unknown",
        ),
        (
            lambda rows: rows.append_column("eps", rows["trial"]),
            r"the columns \[\] are missing and the columns \['eps'\] are unknown",
        ),
        (
            lambda rows: rows.set_column(3, "trial", pc.cast(rows["trial"], pa.int64())),
            "trial: got the type int64, expected the type int32",
        ),
        (
            lambda rows: rows.set_column(0, "sweep", pa.nulls(1, pa.string())),
            "sweep: got null, which the schema does not allow",
        ),
    ],
    ids=["missing", "unknown", "type", "null"],
)
def test_a_table_that_does_not_fit_is_refused(spoil: Callable[[pa.Table], pa.Table], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conform(spoil(training_rows("p", {"trial": 0, "replicate": 0})), TRAININGS)
