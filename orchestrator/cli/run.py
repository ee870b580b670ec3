"""Commands that run, forecast and list sweeps. Fast to import: every command loads its libraries when it runs."""

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from attnsweep.orchestrator.cli import hooks
from attnsweep.orchestrator.cli import resource_options as on
from attnsweep.orchestrator.cli.answers import answer, console, say
from attnsweep.orchestrator.cli.arguments import AsJson, SweepDir
from attnsweep.orchestrator.cli.ending import conclude
from attnsweep.orchestrator.cli.shard_option import OfShard, parse_shard
from attnsweep.orchestrator.cli.trusting import Trust, code_for, opened
from attnsweep.orchestrator.importing import importing
from attnsweep.orchestrator.storage.annotation import Annotation, parse_tags
from attnsweep.orchestrator.storage.place_names import new_directory
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.training.resources import Resources, starting_meanwhile
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.search_spaces.sweep import Sweep

_THIS_MACHINE = Resources()
_what = partial(typer.Option, rich_help_panel="What")
_where = partial(typer.Option, rich_help_panel="Where")
_note = partial(typer.Option, rich_help_panel="Notes")

Fixed = Annotated[
    list[str] | None, _what("--set", metavar="NAME=VALUE", help="Fix a parameter to one value; may be repeated.")
]
Trials = Annotated[int | None, _what(help="Number of configurations to train.")]
NoReport = Annotated[bool, hooks.at_the_end("--no-report", help="Draw no report when the sweep is finished.")]


def sweep_names() -> list[str]:
    """Lists the shipped sweeps, for shell completion."""
    from attnsweep.search_spaces.loading import shipped_names

    return shipped_names()


@on.with_resources()
def run(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="The name of a shipped sweep, a Python or YAML file, or a sweep.json.",
            autocompletion=sweep_names,
        ),
    ],
    trials: Trials = None,
    replicates: Annotated[
        int | None, _what(help="Number of trainings of each configuration, each with its own seed.")
    ] = None,
    seed: Annotated[int | None, _what(help="Seed of the sampler and of all trainings.")] = None,
    fixed: Fixed = None,
    prune_anyway: Annotated[
        bool,
        _what("--prune-anyway", help="Use the sweep's pruner although it biases the objective, a stuck rate."),
    ] = False,
    curves_every: Annotated[
        int | None,
        _what(
            metavar="K",
            help="Keep one probe in K of each curve, with the first and the last; default: 1 for up to 250,000"
            " trainings, 2 for up to 500,000, and so on.",
        ),
    ] = None,
    warm_starts: Annotated[
        list[str] | None,
        _what(
            "--warm-start",
            metavar="DIR",
            help="Tell the sampler the trials of this finished sweep before its first draw; may be repeated.",
        ),
    ] = None,
    directory: Annotated[
        str | None,
        _where("--dir", help="New sweep directory, or s3://BUCKET/PREFIX; default: ./sweeps/<name>-<time>."),
    ] = None,
    or_resume: Annotated[
        bool, _where("--or-resume", help="Continue the sweep if --dir holds it; for schedulers that repeat commands.")
    ] = False,
    of_shard: OfShard = None,
    resources: Resources = _THIS_MACHINE,
    note: Annotated[str, _note(help="A note, stored with the sweep.")] = "",
    tags: Annotated[
        list[str] | None,
        _note("--tag", metavar="NAME=VALUE", help="A tag, stored with the sweep; may be repeated."),
    ] = None,
    keep_weights: Annotated[
        list[int] | None,
        hooks.at_the_end(
            "--keep-weights", metavar="TRIAL", help="Keep the final weights of this trial; may be repeated."
        ),
    ] = None,
    on_finish: hooks.OnFinish = None,
    on_failure: hooks.OnFailure = None,
    no_report: NoReport = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Run a sweep."""
    from attnsweep.orchestrator.storage.place_names import place_of

    processes.start_ahead()
    sweep = _sweep(
        spec,
        fixed,
        trials=trials,
        replicates=replicates,
        seed=seed,
        prune_anyway=prune_anyway or None,
        curves_every=curves_every,
    )
    shard = parse_shard(of_shard)
    for flag, is_given, who in (
        ("--or-resume", or_resume, "a repeated command finds"),
        ("--shard", shard, "all drivers find"),
    ):
        if is_given and directory is None:
            raise UserError(
                flag, given="a command without --dir", expected=f"a directory that {who}", fix="add --dir DIR"
            )
    for trial in keep_weights or []:
        if not 0 <= trial < sweep.trials:
            raise UserError(
                "--keep-weights",
                given=trial,
                expected=f"the number of a trial of this sweep, from 0 to {sweep.trials - 1}",
                fix="give another trial's number, or raise --trials",
            )
    annotation = Annotation(note, parse_tags(tags or []), tuple(sorted({*(keep_weights or ())})))
    place = place_of(new_directory(sweep.name, directory), "--dir")

    code = code_for(spec, sweep, trusted=trust)
    # With `--or-resume`, Ray is not started in advance, because the sweep may already be complete.
    with nullcontext() if or_resume else starting_meanwhile(resources):
        with importing(without=("pandas",)):
            from attnsweep.orchestrator.running.session import run_or_resume, run_sweep

        start = run_or_resume if or_resume else run_sweep
        with hooks.telling_faults(on_failure):
            summary = start(sweep, place, resources, console(stderr=True), code, annotation, warm_starts or (), shard)
    # A repeated `run --or-resume` may give further trials with `--keep-weights`.
    kept = {*annotation.keep_weights, *summary.directory.keep_weights}
    conclude(summary, kept, on_finish, on_failure, report=not no_report, as_json=as_json)


@on.with_resources("engine")
def resume(
    directory: SweepDir,
    resources: Resources = _THIS_MACHINE,
    trials: Annotated[
        str | None, typer.Option(metavar="+N", help="Add this many trials to the sweep, finished or not.")
    ] = None,
    replicates: Annotated[
        str | None, typer.Option(metavar="+N", help="Add this many trainings to each trial, with seeds of their own.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Train failed trainings again.")] = False,
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
    more_trials = on.parse_more(trials, "--trials", "trials")
    more_replicates = on.parse_more(replicates, "--replicates", "replicates")
    # The sweep is opened before Ray is started, so that an error in the sweep appears at once and not after seconds.
    opened(directory, trusted=trust)
    with starting_meanwhile(resources):
        with importing(without=("pandas",)):
            from attnsweep.orchestrator.running.session import resume_sweep

        with hooks.telling_faults(on_failure):
            summary = resume_sweep(
                directory,
                resources,
                console(stderr=True),
                accept_drift=accept_drift,
                more_trials=more_trials,
                more_replicates=more_replicates,
                retry_failed=retry_failed,
            )
    conclude(summary, summary.directory.keep_weights, on_finish, on_failure, report=not no_report, as_json=as_json)


def forecast(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="The name of a shipped sweep, a Python file, or a sweep.json.")
    ],
    fixed: Fixed = None,
    trials: Trials = None,
    replicates: Annotated[int | None, _what(help="Number of trainings of each configuration.")] = None,
    seeds: Annotated[int, typer.Option(min=8, max=4096, help="Trainings of a pilot, for each init_sigma.")] = 256,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Forecast a sweep: when trainings leave their start, what share does so in time, and the price of the sweep."""
    from attnsweep.orchestrator.tools.forecast.forecast import forecast as forecast_sweep

    sweep = _sweep(spec, fixed, trials=trials, replicates=replicates)
    code = code_for(spec, sweep, trusted=trust)
    result = forecast_sweep(sweep, code, seeds, console(stderr=True), say)
    answer(result.print, result.to_json, as_json=as_json)


def specs(
    name: Annotated[str | None, typer.Argument(help="The sweep to show.", autocompletion=sweep_names)] = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Show it as YAML, without fields at their defaults.")] = False,
) -> None:
    """List the shipped sweeps, or show one as JSON or YAML."""
    from attnsweep.orchestrator.cli.screen.sweeps import print_sweeps
    from attnsweep.search_spaces.loading import load_sweep

    if name is None:
        print_sweeps()
    else:
        sweep = load_sweep(name)
        typer.echo(sweep.to_yaml().rstrip() if as_yaml else sweep.to_json())


def _sweep(spec: str, fixed: list[str] | None, **budget: int | None) -> "Sweep":
    """Loads a sweep by the name of its file or a shipped sweep, and applies the options of the command line."""
    from attnsweep.search_spaces.loading import assignments, load_sweep

    sweep = load_sweep(spec).fix(assignments(fixed))
    return sweep.but(**{name: value for name, value in budget.items() if value is not None})
