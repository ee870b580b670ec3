"""Commands that check and tidy sweeps and machines. Fast to import: every command loads its libraries when it runs."""

from contextlib import suppress
from typing import Annotated

import typer
from typer import Option

from attnsweep.orchestrator.cli.answers import EXIT_FAULT, answer, say
from attnsweep.orchestrator.cli.arguments import AsJson, SweepDir, TrackingUri, opened

Follow = Annotated[
    bool, Option("--follow", metavar="", help="While the sweep runs, log its trials as they end; then the rest.")
]


def audit(directory: SweepDir, tracking_uri: TrackingUri = None, as_json: AsJson = False) -> None:
    """Check that trials, trainings, files and MLflow agree, and list faults; exit code 1 if there are any."""
    from attnsweep.orchestrator.storage.record import DamagedRecordError
    from attnsweep.orchestrator.tools.audit.audit import audit as audit_sweep

    with suppress(DamagedRecordError):  # reported by the audit
        opened(directory)
    result = audit_sweep(directory, tracking_uri)
    answer(result.print, result.to_json, as_json=as_json)
    if result.problems:
        raise typer.Exit(EXIT_FAULT)


def compact(directory: SweepDir) -> None:
    """Merge the small files of a ledger into one file per table, and remove what is no longer needed."""
    from attnsweep.orchestrator.ledger.compaction import compact as compact_ledger

    compact_ledger(directory)


def mlflow_sync(directory: SweepDir, tracking_uri: TrackingUri = None, follow: Follow = False) -> None:
    """Log to MLflow the trials that it does not have yet, the results and the report of `attnsweep report`."""
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.tracking.sync import sync

    def tell(n_logged: int, n_due: int) -> None:
        if n_logged % 100 == 0:
            say(f"{n_logged} of {n_due} trials logged")

    done = sync(SweepDirectory.open(directory), tracking_uri, tell, follow=follow)
    say(f"{done.n_logged} trials logged, {done.n_present} already there")


def doctor(
    address: Annotated[
        str | None, Option(help="Check every node of this Ray cluster; default: only this machine, without Ray.")
    ] = None,
    directory: Annotated[
        str | None, Option("--dir", help="Also check that this directory, or s3://BUCKET/PREFIX, can be written.")
    ] = None,
) -> None:
    """Check what sweeps need: versions, Ray's token, GPUs, MLflow, storage; exit code 1 if something fails."""
    from attnsweep.orchestrator.storage.place_names import place_of
    from attnsweep.orchestrator.terminal import PlainConsole
    from attnsweep.orchestrator.tools.doctor import examine

    place = None if directory is None else place_of(directory, "--dir")
    screen, n_failed = PlainConsole(soft_wrap=True), 0
    for finding in examine(address, place):
        screen.print(str(finding))
        n_failed += bool(finding.fix)
    if n_failed:
        raise typer.Exit(EXIT_FAULT)
