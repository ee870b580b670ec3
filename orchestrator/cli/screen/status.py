"""Prints `attnsweep status`, from the ledger and the driver's last progress file."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
from rich.live import Live

from attnsweep.orchestrator.analysis.rates.by_parameter import stuck_rate
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.rates.outcomes import commonest_failure, outcome_counts, pruned_note
from attnsweep.orchestrator.analysis.results import read_stuck_or_slow, stuck_or_slow_sentence
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument
from attnsweep.orchestrator.storage.run_records import PROGRESS, PackUnderWay, span
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep

_SHOWN_PACKS = 16
_LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class _Counts:
    """What the ledger says.

    Attributes:
        slow: How many stuck trainings would be freed by more steps; `None` without predictions.
        failure: As in the summary of a run.
    """

    outcomes: dict[str, int]
    stuck: Rate
    slow: Row | None
    n_trials: int
    last: datetime | None
    failure: str | None


def print_status(where: PlaceName) -> None:
    """Prints state, trials, trainings, outcomes, stuck rate, and unfinished packs.

    Raises:
        UserError: If there is no sweep in the directory.
    """
    console = PlainConsole(soft_wrap=True)
    for line in _lines(SweepDirectory.open(where)):
        console.print(line)


def follow_status(where: PlaceName) -> None:
    """Updates the status every two seconds, until the sweep is finished or its driver has ended.

    Raises:
        UserError: If there is no sweep in the directory.
    """
    ticks = threading.Event()
    with Live(console=PlainConsole(), auto_refresh=False) as live:
        while True:
            directory = SweepDirectory.open(where)
            live.update("\n".join(_lines(directory)), refresh=True)
            if not directory.progress.is_running(datetime.now(UTC)):
                return
            ticks.wait(_LOOK_SECONDS)


def _lines(directory: SweepDirectory) -> Iterator[str]:
    spec, now = directory.own_spec, datetime.now(UTC)
    progress = PROGRESS.read_if_sound(directory.place)
    finished = progress is not None and progress.finished
    counts = Ledger(directory.place).ask(partial(_read, spec=spec), ["trainings"])
    fault = None if progress is None or progress.replays is None else progress.replays.fault
    state = progress.in_words(now) if progress else "not finished"
    yield f"{directory.sweep}: {state}{', with a fault' if fault else ''}"
    if fault:
        yield f"fault       {fault}"
    drawn = f"{progress.n_asked} of {spec.trials} drawn, " if progress and not finished else ""
    of_trials = "" if drawn else f" of {spec.trials}"
    yield f"trials      {drawn}{counts.n_trials}{of_trials} with trainings in the ledger"
    most, n_trainings = spec.trials * most_wanted(spec.replicates), sum(counts.outcomes.values())
    last = "-" if counts.last is None else f"{counts.last:%Y-%m-%d %H:%M:%S} UTC"
    planned = f"of {most}" if isinstance(spec.replicates, int) else f"of at most {most}"
    yield f"trainings   {n_trainings} {planned} in the ledger, the last at {last}"
    if finished and isinstance(spec.replicates, int) and n_trainings < most:
        reason = f"refused by the workload, or lost: attnsweep audit {as_argument(directory.place)}"
        yield f"missing     {most - n_trainings}, {reason}"
    for outcome, count in counts.outcomes.items():
        yield f"  {outcome:16} {count}"
    yield f"engine      {directory.engine_in_words}"
    yield f"stuck rate  {rate_label(counts.stuck)}"
    if (note := pruned_note(counts.outcomes)) is not None:
        yield note
    if counts.slow is not None:
        yield stuck_or_slow_sentence(counts.slow)
    if counts.failure is not None:
        yield f"failed      {counts.failure}"
    is_running = progress is not None and progress.is_running(now)
    if progress is not None and is_running:
        if progress.seconds_left is not None:
            at_most = "" if isinstance(spec.replicates, int) else "at most "
            yield f"time left   {at_most}{span(timedelta(seconds=progress.seconds_left))}"
        yield from _packs(progress.packs)
    if not is_running and not finished:
        yield f"continue with  attnsweep resume {as_argument(directory.place)}"


def _packs(packs: Sequence[PackUnderWay]) -> Iterator[str]:
    if packs:
        yield f"under way   {sum(pack.n_trainings for pack in packs)} trainings"
    for pack in packs[:_SHOWN_PACKS]:
        yield f"  {pack.pack:16} {pack.in_words()}"
    if len(packs) > _SHOWN_PACKS:
        yield f"  and {len(packs) - _SHOWN_PACKS} more packs"


def _read(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> _Counts:
    ((n_trials, last),) = connection.execute(
        "select count(distinct trial), max(finished_at)::timestamp from trainings"
    ).fetchall()
    return _Counts(
        outcomes=outcome_counts(connection),
        stuck=stuck_rate(connection, spec),
        slow=read_stuck_or_slow(connection),
        n_trials=n_trials,
        last=last,
        failure=commonest_failure(connection),
    )
