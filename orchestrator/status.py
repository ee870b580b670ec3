"""How far a sweep is, read from its ledger: works while it runs, and after."""

from pathlib import Path

from rich.console import Console

from orchestrator.analysis.findings import rate_label
from orchestrator.ledger.reader import Ledger
from orchestrator.summary import summarize
from orchestrator.sweep_directory import SweepDirectory


def print_status(path: Path) -> None:
    """Prints trials, trainings, outcomes, stuck rate and the time of the last commit on stdout.

    Raises:
        UserError: If there is no sweep in the directory.
    """
    directory = SweepDirectory.open(path)
    spec = directory.spec
    n_trainings = spec.trials * spec.replicates
    with Ledger(path).connect() as connection:
        ((n_done, last),) = connection.execute(
            "select count(*), strftime(max(finished_at), '%Y-%m-%d %H:%M:%S UTC') from trainings"
        ).fetchall()
    summary = summarize(directory, finished=n_done == n_trainings, seconds=0.0, n_before=n_done, mlflow="")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{directory.sweep}: {'finished' if summary.finished else 'not finished'}")
    console.print(f"trials      {summary.n_trials} of {spec.trials} begun")
    console.print(f"trainings   {n_done} of {n_trainings} in the ledger, the last at {last or '-'}")
    for outcome, count in summary.findings.outcomes.items():
        console.print(f"  {outcome:16} {count}")
    console.print(f"stuck rate  {rate_label(summary.findings.stuck)}")
    if not summary.finished:
        console.print(f"go on with  attnsweep resume {path}")
