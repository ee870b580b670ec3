"""`attnsweep status`: the progress of a sweep, from its ledger and its driver's last report; also while it runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from attnsweep.orchestrator.analysis.rates.answers import outcome_counts
from attnsweep.orchestrator.analysis.rates.by_parameter import stuck_rate
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.stuck_or_slow import StuckOrSlow, read_stuck_or_slow
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.location import Location, as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.whereabouts import PackUnderWay, read_whereabouts
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.search_spaces.sweep import Sweep

if TYPE_CHECKING:
    import duckdb

_SHOWN_PACKS = 16


def print_status(where: Location) -> None:
    """Prints on stdout whether the sweep runs, its trials, unfinished packs, trainings, outcomes and stuck rate.

    Raises:
        UserError: If there is no sweep in the directory.
    """
    directory = SweepDirectory.open(where)
    spec, now = directory.spec, datetime.now(UTC)
    said = None if directory.finished else read_whereabouts(directory.place)
    outcomes, stuck, slow, n_trials, last = Ledger(directory.place).ask(partial(_read, spec=spec))
    console = PlainConsole(soft_wrap=True)
    state = "finished" if directory.finished else said.in_words(now) if said else "not finished"
    console.print(f"{directory.sweep}: {state}")
    asked = f"{said.n_asked} of {spec.trials} drawn, {n_trials}" if said else f"{n_trials} of {spec.trials}"
    console.print(f"trials      {asked} with trainings in the ledger")
    most = spec.trials * most_wanted(spec.replicates)
    of = f"of {most}" if isinstance(spec.replicates, int) else f"of at most {most}"
    console.print(f"trainings   {sum(outcomes.values())} {of} in the ledger, the last at {last or '-'}")
    for outcome, count in outcomes.items():
        console.print(f"  {outcome:16} {count}")
    console.print(f"stuck rate  {rate_label(stuck)}")
    if slow is not None:
        console.print(slow.sentence())
    is_running = said is not None and said.is_running(now)
    if said is not None and is_running:
        _print_packs(said.packs, console)
    if not directory.finished and not is_running:
        console.print(f"continue with  attnsweep resume {as_argument(directory.place)}")


def _print_packs(packs: Sequence[PackUnderWay], console: PlainConsole) -> None:
    if packs:
        console.print(f"under way   {sum(pack.n_trainings for pack in packs)} trainings")
    for pack in packs[:_SHOWN_PACKS]:
        console.print(f"  {pack.pack:16} {pack.n_trainings} trainings, step {pack.step} of {pack.n_steps}")
    if len(packs) > _SHOWN_PACKS:
        console.print(f"  and {len(packs) - _SHOWN_PACKS} more packs")


def _read(
    connection: "duckdb.DuckDBPyConnection", spec: Sweep
) -> tuple[dict[str, int], Rate, StuckOrSlow | None, int, str | None]:
    ((n_trials, last),) = connection.execute(
        "select count(distinct trial), strftime(max(finished_at), '%Y-%m-%d %H:%M:%S UTC') from trainings"
    ).fetchall()
    slow = read_stuck_or_slow(connection)
    return outcome_counts(connection), stuck_rate(connection, spec), slow, n_trials, last
