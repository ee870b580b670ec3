"""Tables that the report shows: outcomes, metrics, events, certificates, reference levels, costs, errors."""

import itertools

import duckdb

from attnsweep.orchestrator.analysis.labels import GREY, outcome_order
from attnsweep.orchestrator.analysis.learning_curves import learning_curves
from attnsweep.orchestrator.analysis.onset_times import event_times, onset_table
from attnsweep.orchestrator.analysis.rates.intervals import Pooling
from attnsweep.orchestrator.analysis.rates.outcomes import tallies
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.ledger.views import identifier, names_with, outcomes_of
from attnsweep.workloads.vocabulary import Outcome

UNKNOWN = Outcome("", GREY)
"""Stands for an outcome that neither this version of attnsweep nor the ledger describes."""
OF_EVERY_WORKLOAD = ("loss", "eval_loss", "grad_norm", "param_norm")
"""The metrics that the engine itself measures."""
_MAX_METRICS = 6
"""With a figure."""
MAX_ERRORS, _MAX_CHARACTERS = 20, 20_000
"""Kinds of error that a report shows, and characters of one traceback."""
_FAILURES = f"""
with failed as (
    select (trial, replicate) as place, trial, replicate, coalesce(error, '') as error,
        left(list_last(string_split(rtrim(coalesce(error, ''), ' ' || chr(10)), chr(10))), 300) as line
    from trainings where outcome = 'failed'
)
select line, count(*) as n, arg_min(trial, place) as trial, arg_min(replicate, place) as replicate,
    arg_min(left(error, {_MAX_CHARACTERS}), place) as traceback
from failed group by line order by n desc, line limit {MAX_ERRORS}
"""


def outcome_shares(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> list[Row]:
    """The rate of each outcome, its `details` (numbers by `outcome_detail`), and as `example` the id of the first."""
    known = outcomes_of(connection)
    details: dict[str, dict[str, int]] = {}
    for outcome, detail, n in connection.execute(
        "select outcome, outcome_detail, count(*) from trainings group by all order by 3 desc, 2"
    ).fetchall():
        details.setdefault(outcome, {})[detail or ""] = n
    query = "select outcome, arg_min(training_id, (trial, replicate)) from trainings group by outcome"
    examples = dict(connection.execute(query).fetchall())
    by_trial = tallies(connection, "true").values()
    return [
        {"outcome": outcome, "kind": known.get(outcome, UNKNOWN), "details": details[outcome]}
        | {"example": examples[outcome]}
        | pool([(sum(tally.values()), tally.get(outcome, 0)) for tally in by_trial]).columns()
        for outcome in sorted(details, key=outcome_order)
    ]


def metric_curves(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """The quartiles by outcome of the workload's own metrics."""
    metrics = connection.execute(
        f"select metric from curves where metric not in {OF_EVERY_WORKLOAD} group by metric"
        f" having count(distinct step) > 1 order by metric limit {_MAX_METRICS}"
    ).fetchall()
    curves = {name: learning_curves(connection, name, "outcome <> 'diverged'").to_pylist() for (name,) in metrics}
    return [{"metric": name, "curves": rows} for name, rows in curves.items() if rows]


def events(connection: duckdb.DuckDBPyConnection, once_per_trial: bool) -> list[Row]:
    """When events happen, then the delay from each to the next. With `once_per_trial` all trials have equal weight."""
    names, rows = names_with(connection, "event_"), []
    pairs = [(name, None) for name in names] + [(then, first) for first, then in itertools.pairwise(names)]
    for name, after in pairs:
        times = event_times(connection, name, after)
        label = name if after is None else f"{name} after {after}"
        onset = onset_table(times, (), [()] * len(times.trial), once_per_trial).to_pylist()
        rows += [{"event": label, "is_delay": after is not None, **row} for row in onset]
    return rows


def certificate_shares(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> list[Row]:
    """For each stuck outcome and test, the share of the tested trainings in which it confirms the outcome."""
    rows = connection.execute(
        "select certificate, outcome, trial, count(*), count(*) filter (certified) from trainings"
        " where certified is not null group by all order by trial"
    ).fetchall()
    counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for test, outcome, _, n, k in rows:
        counts.setdefault((test, outcome), []).append((n, k))
    return [{"test": key[0], "outcome": key[1], **pool(counts[key]).columns()} for key in sorted(counts)]


def reference_levels(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Those that some training has."""
    columns = {"solved": "loss_level"} | {name: f"level_{name}" for name in names_with(connection, "level_")}
    levels: list[Row] = []
    for name, column in columns.items():
        quoted = identifier(column)
        numbers = f"count({quoted}) as n, min({quoted}) as low, median({quoted}) as median, max({quoted}) as high"
        levels += [{"name": name, **row} for row in _rows(connection, f"select {numbers} from trainings")]
    found = [level for level in levels if level["n"]]
    return sorted(found, key=lambda level: (level["name"] != "solved", -level["median"]))


def pack_costs(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Training time by pack size, in powers of two."""
    return _rows(
        connection,
        """
        select min(pack_size) as smallest, max(pack_size) as largest, count(distinct pack) as n_packs,
            count(*) as n_trainings, sum(train_seconds) as seconds,
            quantile_cont(train_seconds, [0.25, 0.5, 0.75]) as quartiles,
            sum(n_steps) filter (train_seconds is not null) / nullif(sum(train_seconds), 0) as steps_per_second
        from trainings group by ceil(log2(greatest(pack_size, 1))) having count(train_seconds) > 0 order by smallest
        """,
    )


def totals(connection: duckdb.DuckDBPyConnection) -> Row:
    """`first` and `last` say when a training finished; `machines` has (host, device, number of trainings)."""
    [row] = _rows(
        connection,
        "select min(finished_at)::timestamp as first, max(finished_at)::timestamp as last,"
        " count(distinct trial) as n_trials, count(*) as n_trainings, coalesce(sum(train_seconds), 0) as seconds"
        " from trainings",
    )
    machines = connection.execute(
        "select coalesce(host, '-'), coalesce(device, '-'), count(*) from trainings group by all order by 3 desc, 1, 2"
    ).fetchall()
    return {**row, "machines": machines}


def failures(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """By the last line of the traceback, with the first training of each."""
    return _rows(connection, _FAILURES)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    return list(connection.sql(sql).to_arrow_table().to_pylist())
