"""The ledger's columns, and the tables that it accepts as rows."""

import math
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attnsweep.orchestrator.ledger.schema import SORT_KEYS, conform, in_order
from tests.orchestrator.ledger.ledger_rows import CURVES, HEADS, TRAININGS, training_rows

CONTRACT = """
sweep string, workload string, variant string, trial int32, replicate int32, training_id string, seed int64,
param_init_sigma double, param_optimizer string, param_learning_rate double, param_learning_rate_schedule string,
param_warmup_steps int64, param_momentum double, param_weight_decay double, param_gradient_clip_norm double,
param_beta_1 double, param_beta_2 double, param_adam_eps double,
param_n_steps int64, param_dtype string, param_float32_state bool, param_stop_when_solved bool,
param_stop_when string, param_intervention string,
param_variant string, param_n_categories int64, param_n_positions int64, param_attention_activation string,
param_expectation string, param_float32_state bool, param_qk string, param_qk_rank int64,
param_batch_size int64, param_skip bool, param_layer_norm_eps double,
param_attention_scale string, param_hidden_width int64, param_flavour string, param_flavour_weight double,
param_qk string, param_qk_rank int64,
outcome string, outcome_detail string, stuck bool, pruned_step int32,
certificate string, certified bool, final_loss double,
eval_loss double, loss_level double, level_zero double, level_mean double, grad_norm double, n_steps int32,
onset_step int32, before_onset_step int32, predicted_escape_step int32,
diverged_step int32, train_seconds double, probe_seconds double, pack string, lane int32, pack_size int32,
device string,
accelerator string,
host string, environment string, finished_at timestamp[us, tz=UTC], error string
"""


def test_trainings_has_the_columns_of_the_contract() -> None:
    ours = {field.name: str(getattr(field.type, "value_type", field.type)) for field in TRAININGS}
    contract = CONTRACT.replace("\n", " ").replace("[us, tz", "[us; tz").split(",")
    assert ours == {column.split()[0]: column.split(maxsplit=1)[1].strip().replace(";", ",") for column in contract}
    assert all(pa.types.is_dictionary(field.type) for field in TRAININGS if ours[field.name] == "string")


@pytest.mark.parametrize("schema", [TRAININGS, CURVES, HEADS], ids=["trainings", "curves", "heads"])
def test_each_column_says_what_it_is_and_what_null_means(schema: pa.Schema) -> None:
    for field in schema:
        doc = field.metadata[b"doc"].decode()
        assert len(doc) > 5
        assert ("null = " in doc) == field.nullable


@pytest.mark.slow
@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), min_size=1))
def test_a_double_is_finite_or_null(values: list[float | None]) -> None:
    finite = [value if value is not None and math.isfinite(value) else None for value in values]
    rows = [{"trial": trial, "replicate": 0, "eval_loss": value} for trial, value in enumerate(values)]
    assert conform(training_rows("p", *rows), TRAININGS)["eval_loss"].to_pylist() == finite

    points = [{"training_id": "t", "trial": 0, "replicate": 0, "step": 0, "metric": "loss", "value": v} for v in values]
    curves = conform(pa.Table.from_pylist(points, CURVES), CURVES)
    assert curves["value"].to_pylist() == [value for value in finite if value is not None]


def test_strings_are_encoded_and_columns_put_in_order() -> None:
    rows = training_rows("p", {"trial": 1, "replicate": 2})
    plain = rows.set_column(0, "sweep", rows["sweep"].cast(pa.string())).select(TRAININGS.names[::-1])
    assert conform(plain, TRAININGS).equals(rows)


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


# Often equal, so that later keys decide.
_whole = st.integers(0, 1) | st.integers(-(2**31), 2**31 - 1)


@pytest.mark.slow
@example([(0, 0, "loss", 0), (0, 0, "eval_loss", 0)])
@given(st.lists(st.tuples(_whole, _whole, st.sampled_from(["loss", "eval_loss", "a"]), _whole), max_size=30))
def test_rows_are_sorted_by_numbers_of_any_size_and_by_words(keys: list[tuple[int, int, str, int]]) -> None:
    names = SORT_KEYS["curves"]
    rows = [{"training_id": str(i), "value": 0.0} | dict(zip(names, each, strict=True)) for i, each in enumerate(keys)]
    halves = [pa.Table.from_pylist(half, CURVES) for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :])]
    found = in_order(pa.concat_tables(halves), names)
    assert found.to_pylist() == sorted(
        pa.Table.from_pylist(rows, CURVES).to_pylist(), key=lambda row: [row[name] for name in names]
    )
