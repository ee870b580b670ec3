"""How far a sweep is, read from its ledger: works while it runs, and after."""

import shlex
from pathlib import Path

from rich.console import Console

from orchestrator.analysis.intervals import rate_label
from orchestrator.analysis.rates import outcome_counts, stuck_rate
from orchestrator.ledger.reader import Ledger
from orchestrator.sweep_directory import SweepDirectory


def print_status(path: Path) -> None:
    """Prints trials, trainings, outcomes, stuck rate and the time of the last commit on stdout.

    Raises:
        UserError: If there is no sweep in the directory.
    """
    directory = SweepDirectory.open(path)
    spec = directory.spec
    with Ledger(path).connect() as connection:
        outcomes, stuck = outcome_counts(connection), stuck_rate(connection)
        ((n_trials, last),) = connection.execute(
            "select count(distinct trial), strftime(max(finished_at), '%Y-%m-%d %H:%M:%S UTC') from trainings"
        ).fetchall()
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{directory.sweep}: {'finished' if directory.finished else 'not finished'}")
    console.print(f"trials      {n_trials} of {spec.trials} begun")
    n_trainings = spec.trials * spec.replicates
    console.print(f"trainings   {sum(outcomes.values())} of {n_trainings} in the ledger, the last at {last or '-'}")
    for outcome, count in outcomes.items():
        console.print(f"  {outcome:16} {count}")
    console.print(f"stuck rate  {rate_label(stuck)}")
    if not directory.finished:
        console.print(f"go on with  attnsweep resume {shlex.quote(str(path))}")
