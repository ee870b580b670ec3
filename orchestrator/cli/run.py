"""The commands that run sweeps: `run`, `resume`, `mlflow-sync`. Light to import: each loads its libraries itself."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from attnsweep.orchestrator.cli import hooks
from attnsweep.orchestrator.cli import resource_options as on
from attnsweep.orchestrator.cli.arguments import SweepDir, TrackingUri
from attnsweep.orchestrator.cli.author import AsJson, sweep_names
from attnsweep.orchestrator.cli.trusting import Trust, code_for, trust_code_of
from attnsweep.orchestrator.importing import importing
from attnsweep.orchestrator.storage.annotation import Annotation, parse_tags
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.location import as_argument, locate
from attnsweep.orchestrator.storage.ray_session import new_directory
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.training.resources import Resources, starting_meanwhile
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.orchestrator.running.summary import Summary
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

EXIT_FAULT, EXIT_SOME_FAILED, EXIT_INTERRUPTED = 1, 3, 130

NoReport = Annotated[bool, typer.Option("--no-report", help="Draw no report when the sweep is finished.")]


def run(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="The name of a shipped sweep, a Python or YAML file, or a sweep.json.",
            autocompletion=sweep_names,
        ),
    ],
    directory: Annotated[
        str | None,
        typer.Option("--dir", help="New sweep directory, or s3://BUCKET/PREFIX; default: ./sweeps/<name>-<time>."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Number of configurations to train.")] = None,
    replicates: Annotated[
        int | None, typer.Option(help="Number of trainings of each configuration, each with its own seed.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampler and of all trainings.")] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Fix a parameter to one value; may be repeated."),
    ] = None,
    prune_anyway: Annotated[
        bool,
        typer.Option("--prune-anyway", help="Use the sweep's pruner although it biases the objective, a stuck rate."),
    ] = False,
    address: on.Address = None,
    local: on.Local = False,
    trainers: on.Trainers = None,
    wait_nodes: on.WaitNodes = 0,
    device: on.OnDevice = on.Device.auto,
    priority: on.Priority = 0,
    engine: on.ByEngine = on.Engine.auto,
    pack_size: on.PackSize = None,
    max_failures: on.MaxFailures = None,
    note: Annotated[str, typer.Option(help="A note, stored with the sweep.")] = "",
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="NAME=VALUE", help="A tag, stored with the sweep; may be repeated."),
    ] = None,
    keep_weights: Annotated[
        list[int] | None,
        typer.Option("--keep-weights", metavar="TRIAL", help="Keep the final weights of this trial; may be repeated."),
    ] = None,
    or_resume: Annotated[
        bool, typer.Option("--or-resume", help="Continue the sweep if --dir holds it; for schedulers, which repeat.")
    ] = False,
    on_finish: hooks.OnFinish = None,
    on_failure: hooks.OnFailure = None,
    no_report: NoReport = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Run a sweep."""
    processes.start_ahead()
    from attnsweep.search_spaces.loading import assignment, load_sweep

    sweep = load_sweep(spec).fix(dict(assignment(text) for text in fixed or []))
    budget = {"trials": trials, "replicates": replicates, "seed": seed, "prune_anyway": prune_anyway or None}
    sweep = sweep.but(**{name: value for name, value in budget.items() if value is not None})
    if or_resume and directory is None:
        raise UserError(
            "--or-resume", given="no --dir", expected="a directory that a repetition finds", fix="add --dir DIR"
        )
    for trial in keep_weights or []:
        if not 0 <= trial < sweep.trials:
            raise UserError(
                "--keep-weights",
                given=trial,
                expected=f"the number of a trial, 0..{sweep.trials - 1}",
                fix="choose another, or raise --trials",
            )
    annotation = Annotation(note, parse_tags(tags or []), tuple(sorted({*(keep_weights or ())})))
    place = locate(new_directory(sweep.name, directory), "--dir")

    resources = Resources(
        address=address,
        local=local,
        n_trainers=on.parse_trainers(trainers),
        n_nodes=wait_nodes,
        device=device.value,
        priority=priority,
        engine=engine.value,
        pack_size=pack_size,
        max_failures=max_failures,
    )
    code = code_for(spec, sweep, trusted=trust)
    # A repetition may find that nothing is left to do.
    with nullcontext() if or_resume else starting_meanwhile(resources):
        with importing(without=("pandas",)):
            from attnsweep.orchestrator.running.session import run_or_resume, run_sweep

        start = run_or_resume if or_resume else run_sweep
        with hooks.telling_faults(on_failure):
            summary = start(sweep, place, resources, _stderr(), code, annotation)
    # A repetition of `--or-resume` may name further trials.
    kept = {*annotation.keep_weights, *summary.directory.keep_weights}
    _conclude(summary, kept, on_finish, on_failure, report=not no_report, as_json=as_json)


def resume(
    directory: SweepDir,
    address: on.Address = None,
    local: on.Local = False,
    trainers: on.Trainers = None,
    wait_nodes: on.WaitNodes = 0,
    device: on.OnDevice = on.Device.auto,
    priority: on.Priority = 0,
    pack_size: on.PackSize = None,
    max_failures: on.MaxFailures = None,
    trials: Annotated[
        str | None, typer.Option(metavar="+N", help="Add this many trials to the sweep, finished or not.")
    ] = None,
    replicates: Annotated[
        str | None, typer.Option(metavar="+N", help="Add this many trainings to each trial, with seeds of their own.")
    ] = None,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="Resume although versions or code have changed.")
    ] = False,
    on_finish: hooks.OnFinish = None,
    on_failure: hooks.OnFailure = None,
    no_report: NoReport = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Resume an interrupted sweep."""
    processes.start_ahead()
    resources = Resources(
        address=address,
        local=local,
        n_trainers=on.parse_trainers(trainers),
        n_nodes=wait_nodes,
        device=device.value,
        priority=priority,
        pack_size=pack_size,
        max_failures=max_failures,
    )
    more_trials = on.parse_more(trials, "--trials", "trials")
    more_replicates = on.parse_more(replicates, "--replicates", "replicates")
    if trust:
        trust_code_of(directory)
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    # Before seconds are spent on starting Ray.
    SweepDirectory.open(directory)
    with starting_meanwhile(resources):
        with importing(without=("pandas",)):
            from attnsweep.orchestrator.running.session import resume_sweep

        with hooks.telling_faults(on_failure):
            summary = resume_sweep(
                directory,
                resources,
                _stderr(),
                accept_drift=accept_drift,
                more_trials=more_trials,
                more_replicates=more_replicates,
            )
    _conclude(summary, summary.directory.keep_weights, on_finish, on_failure, report=not no_report, as_json=as_json)


def mlflow_sync(directory: SweepDir, tracking_uri: TrackingUri = None) -> None:
    """Log to MLflow the trials and the report that it lacks."""
    from attnsweep.orchestrator.running.progress import logging_progress
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.tracking.report import add_report
    from attnsweep.orchestrator.tracking.sync import sync

    sweep = SweepDirectory.open(directory)
    done = sync(sweep, tracking_uri, logging_progress(_stderr()))
    typer.echo(f"{done.n_logged} trials logged, {done.n_present} already there", err=True)
    with _drawing():
        add_report(sweep, tracking_uri)


def _conclude(
    summary: "Summary",
    keep_weights: Collection[int],
    on_finish: str | None,
    on_failure: str | None,
    *,
    report: bool,
    as_json: bool,
) -> None:
    """Says how the run ended; then what is no part of the sweep, so that its failure takes nothing from it."""
    summary.print(_stderr(), report=report)
    if as_json:
        typer.echo(summary.to_json())
    if not summary.finished:
        raise typer.Exit(EXIT_INTERRUPTED)
    place = str(summary.directory.place)
    if summary.fault is not None:
        hooks.tell_fault(on_failure, place, summary.fault)
    elif on_finish is not None:
        hooks.call(on_finish, summary.to_json())
    unkept = _keep_weights(summary.directory, keep_weights)
    if unkept is not None:
        typer.echo(f"attnsweep: {unkept}", err=True)
        hooks.tell_fault(on_failure, place, unkept)
    if report:
        _draw_report(summary)
    if summary.fault is not None or unkept is not None:
        raise typer.Exit(EXIT_FAULT)
    if summary.n_failed or summary.refused:
        raise typer.Exit(EXIT_SOME_FAILED)


def _keep_weights(sweep: "SweepDirectory", trials: Collection[int]) -> str | None:
    """Keeps the final weights of some trials of a finished sweep; returns what failed. Idempotent."""
    if not trials:
        return None
    from attnsweep.orchestrator.inspection.kept_weights import keep_weights
    from attnsweep.orchestrator.terminal import plain

    try:
        keep_weights(sweep, trials, lambda line: typer.echo(line, err=True))
    except Exception as error:  # noqa: BLE001  # Whatever it is, the sweep has finished, and its rows are there.
        place = as_argument(sweep.place)
        again = f"attnsweep resume {place}" if {*trials} <= {*sweep.keep_weights} else "the same command"
        kind = "" if isinstance(error, UserError | SweepError) else f"{type(error).__name__}: "
        said = plain(without_credentials(f"{kind}{error}"))
        return f"the sweep has finished, but weights in {place}/weights are missing ({said}); to try again: {again}"
    return None


def _draw_report(summary: "Summary") -> None:
    """Draws the report where it is missing or has become old."""
    from attnsweep.orchestrator.tracking.projection import have_report_drawn

    keep = summary.has_trained or not summary.has_report
    if keep or summary.in_mlflow:
        with _drawing():
            have_report_drawn(summary.directory, keep=keep, in_mlflow=summary.in_mlflow)


@contextmanager
def _drawing() -> Iterator[None]:
    """Around drawing the report. It takes seconds, so it comes last, and Ctrl-C skips it."""
    with suppress(KeyboardInterrupt), _stderr().status("drawing the report; Ctrl-C skips it"):
        yield


def _stderr() -> "Console":
    from attnsweep.orchestrator.terminal import PlainConsole

    return PlainConsole(stderr=True)
