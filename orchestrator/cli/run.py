"""Commands that run sweeps, decide claims with them, and list the shipped ones.

Fast to import: every command loads its libraries when it runs.
"""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from attnsweep.orchestrator.cli import run_options as on
from attnsweep.orchestrator.cli.answers import (
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_REFUTED,
    EXIT_UNDECIDED,
    answer,
    console,
    listing,
    say,
)
from attnsweep.orchestrator.cli.arguments import AsJson, SweepDir, code_for, opened
from attnsweep.orchestrator.cli.ending import OnFailure, OnFinish, at_the_end, conclude, telling_faults
from attnsweep.orchestrator.storage.annotation import Annotation, parse_tags
from attnsweep.orchestrator.storage.place_names import new_directory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.workloads.errors import UserError

_DEFAULT_RESOURCES = Resources()
_EXITS = {"supported": 0, "refuted": EXIT_REFUTED, "undecided": EXIT_UNDECIDED}
_what = partial(Option, rich_help_panel="What")
_where = partial(Option, rich_help_panel="Where")
_note = partial(Option, rich_help_panel="Notes")

Fixed = Annotated[
    list[str] | None, _what("--set", metavar="NAME=VALUE", help="Fix a parameter to one value; may be repeated.")
]
Trials = Annotated[int | None, _what(help="Number of configurations to train.")]
NoReport = Annotated[bool, at_the_end("--no-report", metavar="", help="Draw no report when the sweep is finished.")]


def sweep_names() -> list[str]:
    from attnsweep.search_spaces.loading import shipped_names

    return shipped_names()


@on.with_resources()
def run(
    spec: Annotated[
        str,
        Argument(
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
    sampler: Annotated[str | None, _what(help="The sampler, in place of the sweep's.")] = None,
    warm_starts: Annotated[
        list[str] | None,
        _what(
            "--warm-start",
            metavar="DIR",
            help="Tell the sampler the trials of this finished sweep before its first draw; may be repeated.",
        ),
    ] = None,
    directory: Annotated[
        str | None, _where("--dir", help="New sweep directory, or s3://BUCKET/PREFIX; default: ./sweeps/<name>-<time>.")
    ] = None,
    or_resume: Annotated[
        bool,
        _where(
            "--or-resume", metavar="", help="Continue the sweep if --dir holds it; for schedulers that repeat commands."
        ),
    ] = False,
    of_shard: on.OfShard = "0/1",
    resources: Resources = _DEFAULT_RESOURCES,
    note: Annotated[str, _note(help="A note, stored with the sweep.")] = "",
    tags: Annotated[
        list[str] | None, _note("--tag", metavar="NAME=VALUE", help="A tag, stored with the sweep; may be repeated.")
    ] = None,
    keep_weights: Annotated[
        list[int] | None,
        at_the_end("--keep-weights", metavar="TRIAL", help="Keep the final weights of this trial; may be repeated."),
    ] = None,
    on_finish: OnFinish = None,
    on_failure: OnFailure = None,
    no_report: NoReport = False,
    as_json: AsJson = False,
) -> None:
    """Run a sweep: train its models, and summarize how the trainings ended."""
    from attnsweep.orchestrator.storage.place_names import place_of
    from attnsweep.search_spaces.loading import assignments, load_sweep

    began = time.monotonic()
    sweep = load_sweep(spec).fix(assignments(fixed))
    changes = {"trials": trials, "replicates": replicates, "seed": seed, "sampler": sampler}
    sweep = sweep.but(**{name: value for name, value in changes.items() if value is not None})
    shard = on.parse_shard(of_shard)
    if or_resume and directory is None:
        raise UserError("--or-resume", given="no --dir", expected="a directory to find again", fix="add --dir DIR")
    for trial in keep_weights or []:
        if not 0 <= trial < sweep.trials:
            expected = f"a trial's number, from 0 to {sweep.trials - 1}"
            raise UserError("--keep-weights", given=trial, expected=expected, fix="give another, or more --trials")
    annotation = Annotation(note, parse_tags(tags or []), tuple(sorted({*(keep_weights or ())})))
    place = place_of(new_directory(sweep.name, directory), "--dir")

    code = code_for(spec, sweep)
    from attnsweep.orchestrator.running.session import run_sweep

    screen, earlier = console(stderr=True), warm_starts or ()
    with telling_faults(on_failure):
        summary = run_sweep(sweep, place, resources, screen, code, annotation, earlier, shard, or_resume=or_resume)
    # Those that an earlier `run` named, too.
    kept = {*annotation.keep_weights, *summary.directory.keep_weights}
    conclude(summary, began, kept, on_finish, on_failure, report=not no_report, as_json=as_json)


@on.with_resources("engine")
def resume(
    directory: SweepDir,
    resources: Resources = _DEFAULT_RESOURCES,
    trials: Annotated[
        str | None, Option(metavar="+N", help="Add this many trials to the sweep, finished or not.")
    ] = None,
    replicates: Annotated[
        str | None, Option(metavar="+N", help="Add this many trainings to each trial, with seeds of their own.")
    ] = None,
    retry_failed: Annotated[bool, Option("--retry-failed", metavar="", help="Train failed trainings again.")] = False,
    accept_drift: Annotated[
        bool, Option("--accept-drift", metavar="", help="Resume although versions have changed.")
    ] = False,
    on_finish: OnFinish = None,
    on_failure: OnFailure = None,
    no_report: NoReport = False,
    as_json: AsJson = False,
) -> None:
    """Resume an interrupted sweep, or extend it by trials or replicates."""
    began = time.monotonic()
    more_trials = on.parse_more(trials, "--trials", "trials")
    more_replicates = on.parse_more(replicates, "--replicates", "replicates")
    from attnsweep.orchestrator.running.session import resume_sweep

    opened(directory)
    with telling_faults(on_failure):
        summary = resume_sweep(
            directory,
            resources,
            console(stderr=True),
            accept_drift=accept_drift,
            more_trials=more_trials,
            more_replicates=more_replicates,
            retry_failed=retry_failed,
        )
    kept = summary.directory.keep_weights
    conclude(summary, began, kept, on_finish, on_failure, report=not no_report, as_json=as_json)


def specs(
    name: Annotated[str | None, Argument(help="The sweep to show.", autocompletion=sweep_names)] = None,
) -> None:
    """List the shipped sweeps, or show one as YAML, to change and run."""
    from attnsweep.search_spaces.loading import load_sweep, shipped_names, sweep_text

    if name is not None:
        typer.echo(sweep_text(name).rstrip())
        return
    table = listing("sweep", "workload", "trainings", "what it answers, and what varies")
    for each in shipped_names():
        sweep = load_sweep(each)
        varied = ", ".join([*sweep.varied(), *sweep.conditional()])
        replicates = sweep.replicates if isinstance(sweep.replicates, int) else f"up to {sweep.replicates.at_most}"
        table.add_row(each, sweep.workload, f"{sweep.trials} x {replicates}", f"{sweep.description} ({varied})")
    console(stderr=False).print(table)


@on.with_resources()
def verify(
    claim: Annotated[
        str, Argument(metavar="CLAIM", help="A claim's YAML file, or the directory of one that has begun.")
    ],
    directory: Annotated[
        str | None, Option("--dir", help="The sweep directory, new or of this claim; default: ./sweeps/<name>-<time>.")
    ] = None,
    budget: Annotated[int | None, Option(min=1, help="The most trainings, in place of the claim's.")] = None,
    seed: Annotated[int | None, Option(min=0, help="Seed of all trainings, in place of the claim's.")] = None,
    resources: Resources = _DEFAULT_RESOURCES,
    as_json: AsJson = False,
) -> None:
    """Decide a claim: draw seeds until it is supported (exit code 0), refuted (5) or undecided at its budget (6)."""
    from attnsweep.search_spaces.claim import load_claim

    file_claim = load_claim(Path(claim)) if Path(claim).suffix in (".yaml", ".yml") else None
    if file_claim is not None:
        changes = {"budget": budget, "seed": seed}
        file_claim = file_claim.but(**{name: value for name, value in changes.items() if value is not None})
    elif directory is not None or seed is not None:
        flag = "--dir" if directory is not None else "--seed"
        fix = f"leave {flag} out, or name the claim's file"
        raise UserError(flag, given=f"the directory {claim}", expected=f"the file of a claim with {flag}", fix=fix)
    where = claim if file_claim is None else new_directory(file_claim.name, directory)
    from attnsweep.orchestrator.report.verdict_page import VERDICT_PAGE
    from attnsweep.orchestrator.storage.place_names import as_argument
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    latest = None
    is_new = file_claim is not None and not SweepDirectory.is_there(where)
    if not is_new:
        opened(where)
    from attnsweep.orchestrator.running.verifying import begin, decide

    # Batch after batch would start MLflow's process again: `attnsweep mlflow-sync` logs the sweep once.
    resources = replace(resources, mlflow=False)
    if file_claim is not None and is_new:
        latest = begin(file_claim, where, resources, console(stderr=True))
    verified = decide(where, resources, console(stderr=True), claim=file_claim, budget=budget, latest=latest)
    answer(verified.verdict.print, verified.verdict.to_json, as_json=as_json)
    place, summary = as_argument(verified.directory.place), verified.summary
    if summary is not None and not summary.finished:
        say(f"interrupted; continue with: attnsweep verify {place}")
        raise typer.Exit(EXIT_INTERRUPTED)
    say(f"page {place}/{VERDICT_PAGE}")
    if summary is not None and summary.fault is not None:
        say(f"fault: {summary.fault}")
        raise typer.Exit(EXIT_FAULT)
    raise typer.Exit(_EXITS[verified.verdict.decision])
