"""Prints `attnsweep status`, from the ledger and what the sweep's driver last wrote of its progress."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
from rich.live import Live

from attnsweep.orchestrator.analysis.rates.by_parameter import STUCK, rate_of
from attnsweep.orchestrator.analysis.rates.intervals import rate_label
from attnsweep.orchestrator.analysis.rates.outcomes import commonest_failure, outcome_counts, pruned_note
from attnsweep.orchestrator.analysis.results import read_stuck_or_slow, stuck_or_slow_sentence
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.place_names import BULK, PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.run_records import PROGRESS, Progress, span
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.search_spaces.replication import max_replicates

_SHOWN_PACKS = 16
_UPDATE_SECONDS = 2.0


def print_status(where: PlaceName) -> None:
    lines = _lines(SweepDirectory.open(place_of(where, without=BULK)))
    PlainConsole(soft_wrap=True).print("\n".join(lines))


def follow_status(where: PlaceName) -> None:
    """Until no driver is at work."""
    ticks = threading.Event()
    with Live(console=PlainConsole(), auto_refresh=False) as live:
        while True:
            directory = SweepDirectory.open(place_of(where, without=BULK))
            live.update("\n".join(_lines(directory)), refresh=True)
            if not directory.progress.is_running(datetime.now(UTC)):
                return
            ticks.wait(_UPDATE_SECONDS)


def _lines(directory: SweepDirectory) -> Iterator[str]:
    now = datetime.now(UTC)
    progress = PROGRESS.read_if_sound(directory.place)
    fault = None if progress is None or progress.replays is None else progress.replays.fault
    state = progress.in_words(now) if progress else "not finished"
    yield f"{directory.sweep}: {state}{', with a fault' if fault else ''}"
    if fault:
        yield f"fault       {fault}"
    yield from Ledger(directory.place).ask(partial(_counted, directory=directory, progress=progress), ["trainings"])
    if progress is not None and progress.is_running(now):
        if progress.seconds_left is not None:
            at_most = "" if isinstance(directory.spec.replicates, int) else "at most "
            yield f"time left   {at_most}{span(timedelta(seconds=progress.seconds_left))}"
        for pack in progress.packs[:_SHOWN_PACKS]:
            yield f"  {pack.pack:16} {pack.in_words()}"
        if (n_more := len(progress.packs) - _SHOWN_PACKS) > 0:
            yield f"  and {n_more} more packs"
    elif progress is None or not progress.finished:
        yield f"continue with  attnsweep resume {as_argument(directory.place)}"


def _counted(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory, progress: Progress | None) -> list[str]:
    spec, outcomes = directory.own_spec, outcome_counts(connection)
    finished = progress is not None and progress.finished
    ((n_trials, last),) = connection.sql("select count(distinct trial), max(finished_at) from trainings").fetchall()
    n_planned, n_trainings = spec.trials * max_replicates(spec.replicates), sum(outcomes.values())
    drawn = f"{progress.n_asked} of {spec.trials} drawn, " if progress and not finished else ""
    of_trials = "" if drawn else f" of {spec.trials}"
    at_most = "" if isinstance(spec.replicates, int) else "at most "
    ended = "" if last is None else f", the last at {last.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    slow, failure = read_stuck_or_slow(connection), commonest_failure(connection)
    slow_note = stuck_or_slow_sentence(slow) if slow else None
    notes = [pruned_note(outcomes), slow_note, f"failed      {failure}" if failure else None]
    missing = f"missing     {n_planned - n_trainings}, refused by the workload, or lost: attnsweep audit"
    is_missing = finished and not at_most and n_trainings < n_planned
    return [
        f"trials      {drawn}{n_trials}{of_trials} with trainings in the ledger",
        f"trainings   {n_trainings} of {at_most}{n_planned} in the ledger{ended}",
        *([f"{missing} {as_argument(directory.place)}"] if is_missing else []),
        *(f"  {outcome:16} {count}" for outcome, count in outcomes.items()),
        f"engine      {directory.engine_in_words}",
        f"stuck rate  {rate_label(rate_of(connection, STUCK, spec))}",
        *filter(None, notes),
    ]
