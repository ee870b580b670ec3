"""How far a sweep is, read from its ledger: works while it runs, and after."""

from functools import partial
from typing import TYPE_CHECKING

from orchestrator.analysis.intervals import Rate, rate_label
from orchestrator.analysis.rates import outcome_counts, stuck_rate
from orchestrator.ledger.reader import Ledger
from orchestrator.places.location import Location, as_argument
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.terminal import PlainConsole
from search_spaces.replication import most_wanted
from search_spaces.sweep import Sweep

if TYPE_CHECKING:
    import duckdb


def print_status(path: Location) -> None:
    """Prints trials, trainings, outcomes, stuck rate and the time of the last commit on stdout.

    Raises:
        UserError: If there is no sweep in the directory.
    """
    directory = SweepDirectory.open(path)
    spec = directory.spec
    outcomes, stuck, n_trials, last = Ledger(path).ask(partial(_read, spec=spec))
    console = PlainConsole(soft_wrap=True)
    console.print(f"{directory.sweep}: {'finished' if directory.finished else 'not finished'}")
    console.print(f"trials      {n_trials} of {spec.trials} begun")
    most = spec.trials * most_wanted(spec.replicates)
    of = f"of {most}" if isinstance(spec.replicates, int) else f"of at most {most}"
    console.print(f"trainings   {sum(outcomes.values())} {of} in the ledger, the last at {last or '-'}")
    for outcome, count in outcomes.items():
        console.print(f"  {outcome:16} {count}")
    console.print(f"stuck rate  {rate_label(stuck)}")
    if not directory.finished:
        console.print(f"go on with  attnsweep resume {as_argument(path)}")


def _read(connection: "duckdb.DuckDBPyConnection", spec: Sweep) -> tuple[dict[str, int], Rate, int, str | None]:
    ((n_trials, last),) = connection.execute(
        "select count(distinct trial), strftime(max(finished_at), '%Y-%m-%d %H:%M:%S UTC') from trainings"
    ).fetchall()
    return outcome_counts(connection), stuck_rate(connection, spec), n_trials, last
