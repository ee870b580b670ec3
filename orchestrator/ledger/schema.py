"""The columns of the ledger's tables."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnsweep.workloads.parameters import ONLY_WITH, Parameter, TrainingParameters
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES, Outcome

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload


SCHEMA_VERSION = 1
"""Increased when a column changes its meaning or type, but not when one is added."""

SORT_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "trainings": ("trial", "replicate"),
        "curves": ("trial", "replicate", "metric", "step"),
        "heads": ("trial", "replicate", "step", "layer", "head"),
    }
)
"""The order of rows inside each file, by table."""

INT32, INT64, DOUBLE, BOOL = pa.int32(), pa.int64(), pa.float64(), pa.bool_()
TEXT = pa.dictionary(INT32, pa.string())
PARAMETER_TYPES = {float: DOUBLE, int: INT64, bool: BOOL, str: TEXT}
_FAMILIES: Mapping[str, tuple[pa.DataType, ...]] = MappingProxyType(
    {
        "param_": tuple(PARAMETER_TYPES.values()),
        "level_": (DOUBLE,),
        "event_": (INT32,),
        "before_event_": (INT32,),
        "score_": (DOUBLE,),
    }
)
"""The allowed types of columns that differ by workload, by the prefix of their names."""
_MAX_RANKS = 2**62
_STUCK = f"the outcome counts as stuck: {', '.join(STUCK_OUTCOMES)}, or one of the workload's own"
_NO_METADATA: Mapping[str, str] = MappingProxyType({})
_OUTCOMES = "outcomes"
"""The metadata key of the column `outcome` with the outcomes that the workload itself declares, as JSON."""
_NOT_FINITE = "not measured, or not finite"
_HELD_OR_FAILED = "it held at step 0, or the training failed"
_UNTESTED = "it was not stuck, its label has no test, or certified_share left it out"


def trainings_schema(
    parameters: type[TrainingParameters],
    level_names: Sequence[str] = (),
    event_names: Sequence[str] = (),
    outcomes: Mapping[str, Outcome] = MappingProxyType({}),
) -> pa.Schema:
    """One row per training. `outcomes`: those that the workload itself declares, by label."""
    own = (
        {_OUTCOMES: json.dumps({label: asdict(replace(outcome, when=None)) for label, outcome in outcomes.items()})}
        if outcomes
        else {}
    )
    return pa.schema(
        [
            _field("sweep", TEXT, "name of the sweep"),
            _field("workload", TEXT, "name of the workload"),
            _field("variant", TEXT, "variant of the workload", null="it has none"),
            _field("trial", INT32, "number of the trial, from 0"),
            _field("replicate", INT32, "number of the training in its trial, from 0"),
            _field("training_id", TEXT, "hash of workload, parameters and seed"),
            _field("seed", INT64, "seed of all random numbers of the training"),
            *(_parameter_field(declared) for declared in parameters.declared().values()),
            _field("outcome", TEXT, "label of how the training ended", metadata=own),
            _field(
                "outcome_detail", TEXT, "reference level, `valley`, `moving` or `negative loss`", null="it has none"
            ),
            _field("stuck", BOOL, _STUCK),
            _field("certificate", TEXT, "test applied to its stuck label", null=_UNTESTED),
            _field("certified", BOOL, "whether the test confirms the label", null=_UNTESTED),
            _field("final_loss", DOUBLE, "training loss at the last probe", null=_NOT_FINITE),
            _field(
                "eval_loss", DOUBLE, "evaluation loss at the last probe; the outcome is judged by it", null=_NOT_FINITE
            ),
            _field(
                "loss_level", DOUBLE, "eval_loss below which it is solved", null="other metrics decide, or it failed"
            ),
            *(
                _field(f"level_{name}", DOUBLE, f"eval_loss at the reference level {name}", null="it has none")
                for name in level_names
            ),
            _field("grad_norm", DOUBLE, "norm of eval_loss's gradient, at the last probe", null=_NOT_FINITE),
            _field("n_steps", INT32, "optimizer steps taken; if pruned, to its last probe; if failed, 0"),
            _field(
                "onset_step", INT32, "probe, or diverged_step, from which the outcome held", null="failed or pruned"
            ),
            _field(
                "before_onset_step",
                INT32,
                "probe before onset_step: the outcome came after it, by onset_step",
                null="onset_step is 0 or null",
            ),
            *itertools.chain.from_iterable(
                (
                    _field(f"event_{name}", INT32, f"first probe at which {name} held", null="none is known"),
                    _field(
                        f"before_event_{name}", INT32, f"last probe before {name} held, or of all", null=_HELD_OR_FAILED
                    ),
                )
                for name in event_names
            ),
            _field(
                "predicted_escape_step",
                INT32,
                "step at which the loss is 1% below its plateau, by a law of the start",
                null="no law is known, or it says never",
            ),
            _field(
                "diverged_step",
                INT32,
                "first step whose loss was not finite, or probe at which it was negative; the losses are then null",
                null="there was none: a diverged training's loss was finite, but too large",
            ),
            _field("pruned_step", INT32, "probe at which its trial was pruned", null="it was not"),
            _field(
                "train_seconds", DOUBLE, "wall seconds: this training's share of its pack's time", null="not measured"
            ),
            _field("probe_seconds", DOUBLE, "seconds of train_seconds that probes took", null="not measured"),
            _field("pack", TEXT, "name of the pack: the trainings that shared its program"),
            _field("lane", INT32, "its slot in the pack"),
            _field("pack_size", INT32, "trainings in the pack"),
            _field("device", TEXT, "device it was trained on", null="it reached no device"),
            _field("accelerator", TEXT, "model of the GPU", null="it was a CPU, or the training reached no device"),
            _field("host", TEXT, "machine it was trained on", null="it reached no machine"),
            _field(
                "environment",
                TEXT,
                "versions, code and type of machine that trained it: an id in sweep.json",
                null="not recorded",
            ),
            _field(
                "finished_at",
                pa.timestamp("us", tz="UTC"),
                "when its pack ended, by the trainer's clock; a failed one's by the driver's",
            ),
            _field("error", TEXT, "traceback of the error", null="it did not fail"),
        ]
    )


def schemas_of(workload: "Workload[Any] | type[Workload[Any]]") -> Mapping[str, pa.Schema]:
    """The columns by table; no `heads` for a workload without attention heads."""
    # `Any`, because mypy takes a class for unhashable if its instances are, and the cache needs hashable arguments.
    parameters: Any = workload.parameters
    names = (tuple(workload.level_names), tuple(workload.events), tuple(workload.outcomes.items()))
    return _schemas(parameters, *names, tuple(workload.head_score_names))


@lru_cache(maxsize=16)
def _schemas(
    parameters: type[TrainingParameters],
    level_names: tuple[str, ...],
    event_names: tuple[str, ...],
    outcomes: tuple[tuple[str, Outcome], ...],
    score_names: tuple[str, ...],
) -> Mapping[str, pa.Schema]:
    trainings = trainings_schema(parameters, level_names, event_names, dict(outcomes))
    schemas = {"trainings": trainings, "curves": curves_schema()}
    return MappingProxyType(schemas | ({"heads": heads_schema(score_names)} if score_names else {}))


def curves_schema() -> pa.Schema:
    """One row per training, probe and metric; none for a value that was not measured or is not finite."""
    return pa.schema(
        [
            *_training_key(),
            _field("step", INT32, "optimizer steps taken when measured"),
            _field("metric", TEXT, "what was measured"),
            _field("value", DOUBLE, "its value"),
        ]
    )


def heads_schema(score_names: Sequence[str]) -> pa.Schema:
    """One row per training, probe, layer and head, with a column `score_<name>` for each score."""
    return pa.schema(
        [
            *_training_key(),
            _field("step", INT32, "optimizer steps taken when probed"),
            _field("layer", INT32, "number of the layer, from 0"),
            _field("head", INT32, "number of the head in its layer, from 0"),
            _field("role", TEXT, "what the head does, by its scores"),
            *(_field(f"score_{name}", DOUBLE, f"the head's score {name}", null=_NOT_FINITE) for name in score_names),
        ]
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Puts columns into the schema's order, encodes strings, and replaces doubles that are not finite by null.

    No other type is converted. Rows are dropped where a double is null that must not be, such as `value` of curves.

    Raises:
        ValueError: For a missing or unknown column, another type, or a null where the schema has none.
    """
    missing = sorted(set(schema.names) - set(table.column_names))
    unknown = sorted(set(table.column_names) - set(schema.names))
    if missing or unknown:
        raise ValueError(
            f"expected the columns of the schema, but the columns {missing} are missing and the columns {unknown} are"
            " unknown"
        )
    conformed = pa.table([_column(table[field.name], field) for field in schema], schema=schema)
    for field in schema:
        if field.type == DOUBLE and not field.nullable and conformed[field.name].null_count:
            conformed = conformed.filter(pc.is_valid(conformed[field.name]))
    for field in schema:
        if not field.nullable and conformed[field.name].null_count:
            raise ValueError(f"column {field.name}: got null, which the schema does not allow")
    return conformed


def misfits(table: str, schema: pa.Schema) -> Iterator[str]:
    """How a file's columns differ from those that its table must have."""
    fields = dict(zip(schema.names, schema, strict=True))
    if len(fields) < len(schema.names):
        yield "several columns of the same name"
    for column in BASE_COLUMNS[table]:
        field = fields.pop(column.name, None)
        if field is None:
            if not column.nullable:  # others may have been added after the file was written
                yield f"no column {column.name}"
        elif field.type != column.type:
            yield f"the column {column.name} is {field.type}, not {column.type}"
        elif field.nullable and not column.nullable:
            yield f"the column {column.name} may be null"
    for name, field in fields.items():
        kinds = next((kinds for prefix, kinds in _FAMILIES.items() if name.startswith(prefix)), (field.type,))
        if field.type not in kinds:
            yield f"the column {name} is {field.type}, not {' or '.join(map(str, kinds))}"


def clashes(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """The files in which a column has another type than in an earlier file, each with one difference."""
    known: dict[str, pa.DataType] = {}
    problems = {}
    for name, schema in schemas.items():
        for field in schema:
            if known.setdefault(field.name, field.type) != field.type:
                problems[name] = f"the column {field.name} is {field.type}, not {known[field.name]} as in another file"
    return problems


def in_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Sorts by key columns: integers or texts without nulls."""
    table = table.unify_dictionaries()
    # The keys of a row become the digits of one number, because pyarrow's sort by several columns is several times
    # slower.
    rank, n_ranks = np.zeros(table.num_rows, np.int64), 1
    for key in keys:
        digits = _numbers(table[key])
        if not len(digits):
            return table
        low, high = int(digits.min()), int(digits.max())
        if n_ranks * (high - low + 1) > _MAX_RANKS:  # int64 would overflow, so the ranks in use are numbered anew
            ranks, rank = np.unique(rank, return_inverse=True)
            n_ranks = len(ranks)
        rank = rank * (high - low + 1) + (digits - low)
        n_ranks *= high - low + 1
    # NumPy's stable sort is fast here, because the table consists of parts that are in order already.
    return table.take(np.argsort(rank, kind="stable"))


def outcomes_in(schema: pa.Schema) -> dict[str, Outcome]:
    """The outcomes that the workload itself declares, from a file of `trainings`."""
    metadata: Mapping[bytes, bytes] = schema.field("outcome").metadata or {}
    own: dict[str, Any] = json.loads(metadata.get(_OUTCOMES.encode(), b"{}"))
    return {label: Outcome(**outcome) for label, outcome in own.items()}


def _field(
    name: str, kind: pa.DataType, doc: str, *, null: str | None = None, metadata: Mapping[str, str] = _NO_METADATA
) -> pa.Field:
    described = {"doc": doc if null is None else f"{doc}; null = {null}", **metadata}
    return pa.field(name, kind, nullable=null is not None, metadata=described)


def _parameter_field(declared: Parameter) -> pa.Field:
    # The `doc` of an optional parameter already says what null means.
    on, _ = ONLY_WITH.get(declared.name, ("", ()))
    means = f"without effect with this {on}" if on else "not declared by the version that trained it"
    null = "" if declared.optional else f"; null = {means}"
    kind = PARAMETER_TYPES[declared.kind]
    return pa.field(f"param_{declared.name}", kind, metadata={"doc": declared.doc + null})


def _training_key() -> list[pa.Field]:
    return [
        _field("training_id", TEXT, "the training, as in trainings"),
        _field("trial", INT32, "its trial"),
        _field("replicate", INT32, "its replicate"),
    ]


def _column(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if field.type == TEXT and not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    if field.type == TEXT and pa.types.is_dictionary(values.type):
        values = values.cast(TEXT)
    if values.type != field.type:
        raise ValueError(f"column {field.name}: got the type {values.type}, expected the type {field.type}")
    if values.type == DOUBLE:
        return pc.if_else(pc.is_finite(values), values, pa.scalar(None, DOUBLE))
    return values


def _numbers(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Integers as they are, texts by their alphabetic rank."""
    chunk = values.combine_chunks()
    if not pa.types.is_dictionary(chunk.type):
        return np.asarray(chunk, np.int64)
    ranks = np.empty(len(chunk.dictionary), np.int64)
    ranks[pc.sort_indices(chunk.dictionary)] = np.arange(len(ranks))
    ranks_of_rows: NDArray[np.int64] = ranks[np.asarray(chunk.indices)]
    return ranks_of_rows


BASE_COLUMNS: Mapping[str, pa.Schema] = MappingProxyType(
    {"trainings": trainings_schema(TrainingParameters), "curves": curves_schema(), "heads": heads_schema(())}
)
"""The columns that the tables of every sweep have, by table. Each workload adds its own."""


def thinned(curves: pa.Table, every: int) -> pa.Table:
    """Keeps of each curve every k-th probe, besides the first and the last. The rows of a curve must be contiguous.

    Probes are counted from the start: trainings of different lengths keep the same steps, for medians over trainings.
    """
    return curves if every == 1 or not curves.num_rows else curves.filter(pa.array(_stays(curves, every)))


def _stays(curves: pa.Table, every: int) -> NDArray[np.bool_]:
    metric = curves["metric"].combine_chunks()
    columns = (curves["trial"].to_numpy(), curves["replicate"].to_numpy(), np.asarray(metric.indices))
    begins = np.ones(curves.num_rows, np.bool_)  # whether the row is its curve's first probe
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    row = np.arange(curves.num_rows)
    probe = row - np.maximum.accumulate(np.where(begins, row, 0))
    is_last = np.append(begins[1:], True)
    stays: NDArray[np.bool_] = (probe % every == 0) | is_last
    return stays
