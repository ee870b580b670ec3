"""How trainings ended: counts, rates of outcomes in groups of trials, and what is in no rate."""

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.rates.bins import Groups
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, pooling
from attnsweep.orchestrator.analysis.tables import table_of
from attnsweep.orchestrator.ledger.views import IS_JUDGED
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import PRUNED, UNJUDGED_OUTCOMES


def outcome_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The most frequent first."""
    rows = connection.execute("select outcome, count(*) from trainings group by 1 order by 2 desc, 1").fetchall()
    return dict(rows)


def tallies(connection: duckdb.DuckDBPyConnection, condition: str = IS_JUDGED) -> dict[int, dict[str, int]]:
    """By trial and outcome the number of trainings; by default without failed and pruned ones."""
    found: dict[int, dict[str, int]] = {}
    query = f"select trial, outcome, count(*) from trainings where {condition} group by all order by all"
    for trial, outcome, n in connection.execute(query).fetchall():
        found.setdefault(trial, {})[outcome] = n
    return found


def outcome_rates(connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], groups: Groups) -> pa.Table:
    """One row per group and outcome: its rate among the group's trainings that neither failed nor were pruned."""
    outcomes = [outcome for outcome in outcome_counts(connection) if outcome not in UNJUDGED_OUTCOMES]
    counts, pool, rows = tallies(connection), pooling(*specs), []
    for place, trials in groups.cells().items():
        inside = [counts[trial] for trial in trials if trial in counts]
        for outcome in outcomes:
            rate = pool([(sum(tally.values()), tally.get(outcome, 0)) for tally in inside])
            rows.append(groups.label(place) | {"outcome": outcome, "n_trials": len(inside)} | rate.columns())
    return table_of({**dict.fromkeys((*groups.names, "outcome"), str), "n_trials": int, **RATE_COLUMNS}, rows)


def commonest_failure(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The commonest last line of an error, such as `4 of 18: ValueError: ...`; `None` if none failed."""
    row = connection.execute(
        r"""
        select count(*), sum(count(*)) over (), string_split(rtrim(error, E' \n'), E'\n')[-1] as line from trainings
        where outcome = 'failed' group by line order by 1 desc, line limit 1
        """
    ).fetchone()
    return f"{row[0]:,} of {row[1]:,}: {(row[2] or '')[:200]}" if row else None


def pruned_note(outcomes: Mapping[str, int]) -> str | None:
    """A sentence; `None` if no training was pruned."""
    if not (n_pruned := outcomes.get(PRUNED, 0)):
        return None
    return (
        f"pruned: {n_pruned:,} of {sum(outcomes.values()):,} trainings are in no rate; the rates are those of trials"
        " that the pruner let run, not those over the space"
    )
