"""Plain facts of a ledger for its report: outcomes with intervals, reference levels, time, failures. SQL does it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import duckdb

from orchestrator.analysis.intervals import Rate
from orchestrator.analysis.labels import OUTCOME_MEANINGS, outcome_order
from orchestrator.analysis.rates import Pooling
from orchestrator.ledger.sql_text import identifier

_MOST_PACK_SIZES = 12
MOST_ERRORS = 20
"""Kinds of error that a report shows."""
_MOST_CHARACTERS = 20_000
"""Of one traceback."""


@dataclass(frozen=True, slots=True)
class OutcomeShare:
    """One outcome.

    Attributes:
        outcome: Its label.
        meaning: In one line; empty for a label that is not ours.
        rate: Its share of all trainings, failed ones included.
        details: Trainings by `outcome_detail`.
        example: Id of its first training.
    """

    outcome: str
    meaning: str
    rate: Rate
    details: Mapping[str, int]
    example: str


@dataclass(frozen=True, slots=True)
class ReferenceLevel:
    """A loss known beforehand, over the trainings that have it."""

    name: str
    n: int
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class PackCost:
    """Trainings of packs of one size, or of a range of sizes.

    Attributes:
        sizes: `64` or `33..64`.
        n_packs, n_trainings: Of them.
        seconds: Core-seconds together.
        quartiles: Of core-seconds per training.
        steps_per_second: Optimizer steps per core-second, all lanes counted; `None` where no time was measured.
    """

    sizes: str
    n_packs: int
    n_trainings: int
    seconds: float
    quartiles: tuple[float, float, float]
    steps_per_second: float | None


@dataclass(frozen=True, slots=True)
class Course:
    """When and where: first and last training, and trainings by host and device."""

    first: datetime | None
    last: datetime | None
    n_trials: int
    n_trainings: int
    seconds: float
    places: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """One kind of error: its last line, how often, and the first traceback of it."""

    line: str
    n: int
    trial: int
    replicate: int
    traceback: str


def outcome_shares(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[OutcomeShare, ...]:
    """Every outcome that occurs, in the report's order; trainings of one trial are not taken as independent."""
    rows = connection.execute(
        "select outcome, trial, count(*), min(replicate), arg_min(training_id, replicate) from trainings"
        " group by outcome, trial order by trial"
    ).fetchall()
    details: dict[str, dict[str, int]] = {}
    for outcome, detail, n in connection.execute(
        "select outcome, outcome_detail, count(*) from trainings group by all order by 3 desc, 2"
    ).fetchall():
        details.setdefault(outcome, {})[detail or ""] = n
    sizes: dict[int, int] = {}
    counts: dict[str, dict[int, int]] = {}
    examples: dict[str, str] = {}
    for outcome, trial, n, _, training_id in rows:
        sizes[trial] = sizes.get(trial, 0) + n
        counts.setdefault(outcome, {})[trial] = n
        examples.setdefault(outcome, training_id)
    return tuple(
        OutcomeShare(
            outcome,
            OUTCOME_MEANINGS.get(outcome, ""),
            pool([(n, counts[outcome].get(trial, 0)) for trial, n in sizes.items()]),
            details[outcome],
            examples[outcome],
        )
        for outcome in sorted(counts, key=outcome_order)
    )


def reference_levels(connection: duckdb.DuckDBPyConnection) -> tuple[ReferenceLevel, ...]:
    """The level that counts as solved, then the others, highest first; only those that some training has."""
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    found = []
    for column in ("loss_level", *(name for name in columns if name.startswith("level_"))):
        quoted = identifier(column)
        ((n, low, median, high),) = connection.execute(
            f"select count({quoted}), min({quoted}), median({quoted}), max({quoted}) from trainings"
        ).fetchall()
        if n:
            name = "solved" if column == "loss_level" else column.removeprefix("level_")
            found.append(ReferenceLevel(name, n, low, median, high))
    return tuple(sorted(found, key=lambda level: (level.name != "solved", -level.median)))


def pack_costs(connection: duckdb.DuckDBPyConnection) -> tuple[PackCost, ...]:
    """Core-seconds by pack size; by doublings of it where there are more than 12 sizes."""
    ((n_sizes,),) = connection.execute("select count(distinct pack_size) from trainings").fetchall()
    group = "pack_size" if n_sizes <= _MOST_PACK_SIZES else "ceil(log2(greatest(pack_size, 1)))"
    rows = connection.execute(
        f"""
        select min(pack_size), max(pack_size), count(distinct pack), count(*), coalesce(sum(train_seconds), 0),
            quantile_cont(train_seconds, [0.25, 0.5, 0.75]), sum(n_steps) filter (train_seconds is not null)
        from trainings group by {group} order by 1
        """
    ).fetchall()
    return tuple(
        PackCost(
            f"{smallest}" if smallest == largest else f"{smallest}..{largest}",
            n_packs,
            n_trainings,
            seconds,
            tuple(quartiles),
            n_steps / seconds if seconds else None,
        )
        for smallest, largest, n_packs, n_trainings, seconds, quartiles, n_steps in rows
        if quartiles is not None
    )


def course(connection: duckdb.DuckDBPyConnection) -> Course:
    """When, where and how much."""
    ((first, last, n_trials, n_trainings, seconds),) = connection.execute(
        "select min(finished_at)::timestamp, max(finished_at)::timestamp, count(distinct trial), count(*),"
        " coalesce(sum(train_seconds), 0) from trainings"
    ).fetchall()
    places = connection.execute(
        "select coalesce(host, '-'), coalesce(device, '-'), count(*) from trainings group by all order by 3 desc, 1, 2"
    ).fetchall()
    return Course(first, last, n_trials, n_trainings, seconds, tuple(places))


def failures(connection: duckdb.DuckDBPyConnection) -> tuple[Failure, ...]:
    """Errors by their last line, most frequent first; at most 20 of them."""
    rows = connection.execute(
        f"""
        with failed as (
            select trial, replicate, coalesce(error, '') as error,
                left(list_last(string_split(rtrim(coalesce(error, ''), ' ' || chr(10)), chr(10))), 300) as line
            from trainings where outcome = 'failed'
        )
        select line, count(*), min((trial, replicate)), arg_min(left(error, {_MOST_CHARACTERS}), (trial, replicate))
        from failed group by line order by 2 desc, 1 limit {MOST_ERRORS}
        """
    ).fetchall()
    return tuple(Failure(line, n, trial, replicate, text) for line, n, (trial, replicate), text in rows)
