"""What the report shows as numbers, in SQL: outcomes, metrics, reference levels, costs, errors."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import duckdb

from attnsweep.orchestrator.analysis.labels import GREY, outcome_order
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate
from attnsweep.orchestrator.ledger.views import identifier, outcomes_of
from attnsweep.workloads.vocabulary import Outcome

UNKNOWN = Outcome("", GREY)
"""Stands for an outcome that neither this version of attnsweep nor the ledger describes."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
OF_EVERY_WORKLOAD = ("loss", "eval_loss", "grad_norm", "param_norm")
"""The metrics that the engine measures in each workload."""
_MOST_METRICS = 20
_MEASURES = f"""
with own as (select trial, replicate, metric, step, value from curves where metric not in {OF_EVERY_WORKLOAD}),
last as (select metric, trial, replicate, arg_max(value, step) as value from own group by all),
measured as (
    select name, outcome, value from trainings unpivot (value for name in (onset_step, before_onset_step))
    union all select metric, outcome, value from last join trainings using (trial, replicate)
)
select name, outcome, count(*) as n, quantile_cont(value, {[*QUANTILES]}) as quantiles from measured group by all
"""
_MOST_PACK_SIZES = 12
MOST_ERRORS, _MOST_CHARACTERS = 20, 20_000
"""The most kinds of error that a report shows, and the most characters of one traceback."""
_FAILURES = f"""
with failed as (
    select (trial, replicate) as place, trial, replicate, coalesce(error, '') as error,
        left(list_last(string_split(rtrim(coalesce(error, ''), ' ' || chr(10)), chr(10))), 300) as line
    from trainings where outcome = 'failed'
)
select line, count(*) as n, arg_min(trial, place) as trial, arg_min(replicate, place) as replicate,
    arg_min(left(error, {_MOST_CHARACTERS}), place) as traceback
from failed group by line order by n desc, line limit {MOST_ERRORS}
"""
Row: TypeAlias = dict[str, Any]


class OutcomeShare(NamedTuple):
    """`details`: these trainings by `outcome_detail`; `example`: the id of the first of them."""

    outcome: str
    kind: Outcome
    rate: Rate
    details: Mapping[str, int]
    example: str


class CertificateShare(NamedTuple):
    """How often a certificate confirms one stuck outcome."""

    test: str
    outcome: str
    confirmed: Rate


class ReferenceLevel(NamedTuple):
    name: str
    n: int
    low: float
    median: float
    high: float


class Totals(NamedTuple):
    """`first` and `last`: when a training finished; `None` without any. Machines by (host, device)."""

    first: datetime | None
    last: datetime | None
    n_trials: int
    n_trainings: int
    seconds: float
    machines: tuple[tuple[str, str, int], ...]


def shares_by_trial(rows: Iterable[tuple[str, int, int]], labels: Iterable[str], pool: Pooling) -> dict[str, Rate]:
    """From (label, trial, count): the share of each label in the total count."""
    sizes: dict[int, int] = {}
    counts: dict[tuple[str, int], int] = {}
    for label, trial, n in rows:
        sizes[trial] = sizes.get(trial, 0) + n
        counts[label, trial] = n
    return {label: pool([(n, counts.get((label, trial), 0)) for trial, n in sizes.items()]) for label in labels}


def outcome_shares(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[OutcomeShare, ...]:
    known = outcomes_of(connection)
    details: dict[str, dict[str, int]] = {}
    for outcome, detail, n in connection.execute(
        "select outcome, outcome_detail, count(*) from trainings group by all order by 3 desc, 2"
    ).fetchall():
        details.setdefault(outcome, {})[detail or ""] = n
    rows = connection.execute("select outcome, trial, count(*) from trainings group by all order by trial").fetchall()
    rates = shares_by_trial(rows, sorted(details, key=outcome_order), pool)
    examples = dict(
        connection.execute(
            "select outcome, arg_min(training_id, (trial, replicate)) from trainings group by outcome"
        ).fetchall()
    )
    return tuple(
        OutcomeShare(outcome, known.get(outcome, UNKNOWN), rate, details[outcome], examples[outcome])
        for outcome, rate in rates.items()
    )


def measures(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Quantiles over the trainings with each outcome."""
    rows = _rows(connection, _MEASURES)
    onsets = ("before_onset_step", "onset_step")
    shown = [*onsets, *sorted({row["name"] for row in rows}.difference(onsets))[:_MOST_METRICS]]
    shown_rows = [row for row in rows if row["name"] in shown]
    return sorted(shown_rows, key=lambda row: (shown.index(row["name"]), outcome_order(row["outcome"])))


def certificate_shares(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[CertificateShare, ...]:
    """For each stuck outcome and test, the share of the tested trainings in which it confirms the outcome."""
    rows = connection.execute(
        "select certificate, outcome, trial, count(*), count(*) filter (certified) from trainings"
        " where certified is not null group by all order by trial"
    ).fetchall()
    counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for test, outcome, _, n, k in rows:
        counts.setdefault((test, outcome), []).append((n, k))
    return tuple(CertificateShare(*key, pool(counts[key])) for key in sorted(counts))


def reference_levels(connection: duckdb.DuckDBPyConnection) -> tuple[ReferenceLevel, ...]:
    """Those with a value of some training."""
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    levels = []
    for column in ("loss_level", *(name for name in columns if name.startswith("level_"))):
        quoted = identifier(column)
        ((n, low, median, high),) = connection.execute(
            f"select count({quoted}), min({quoted}), median({quoted}), max({quoted}) from trainings"
        ).fetchall()
        if n:
            name = "solved" if column == "loss_level" else column.removeprefix("level_")
            levels.append(ReferenceLevel(name, n, low, median, high))
    return tuple(sorted(levels, key=lambda level: (level.name != "solved", -level.median)))


def pack_costs(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Core-seconds by pack size."""
    ((n_sizes,),) = connection.execute("select count(distinct pack_size) from trainings").fetchall()
    group = "pack_size" if n_sizes <= _MOST_PACK_SIZES else "ceil(log2(greatest(pack_size, 1)))"
    return _rows(
        connection,
        f"""
        select min(pack_size) as smallest, max(pack_size) as largest, count(distinct pack) as n_packs,
            count(*) as n_trainings, sum(train_seconds) as seconds,
            quantile_cont(train_seconds, [0.25, 0.5, 0.75]) as quartiles,
            sum(n_steps) filter (train_seconds is not null) / nullif(sum(train_seconds), 0) as steps_per_second
        from trainings group by {group} having count(train_seconds) > 0 order by smallest
        """,
    )


def totals(connection: duckdb.DuckDBPyConnection) -> Totals:
    ((first, last, n_trials, n_trainings, seconds),) = connection.execute(
        "select min(finished_at)::timestamp, max(finished_at)::timestamp, count(distinct trial), count(*),"
        " coalesce(sum(train_seconds), 0) from trainings"
    ).fetchall()
    machines = connection.execute(
        "select coalesce(host, '-'), coalesce(device, '-'), count(*) from trainings group by all order by 3 desc, 1, 2"
    ).fetchall()
    return Totals(first, last, n_trials, n_trainings, seconds, tuple(machines))


def failures(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """By the last line of their traceback."""
    return _rows(connection, _FAILURES)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    return list(connection.sql(sql).to_arrow_table().to_pylist())
