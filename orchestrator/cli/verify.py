"""`attnsweep verify`, the command that decides claims. It imports heavy libraries only when it runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnsweep.orchestrator.cli import resource_options as on
from attnsweep.orchestrator.cli.answers import (
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_REFUTED,
    EXIT_UNDECIDED,
    answer,
    console,
    say,
)
from attnsweep.orchestrator.cli.arguments import AsJson
from attnsweep.orchestrator.cli.trusting import Trust, opened
from attnsweep.orchestrator.importing import importing
from attnsweep.orchestrator.storage.place_names import new_directory
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.orchestrator.running.verifying import Verified
    from attnsweep.search_spaces.claim import Claim

_THIS_MACHINE = Resources()
_EXITS = {"supported": 0, "refuted": EXIT_REFUTED, "undecided": EXIT_UNDECIDED}


@on.with_resources()
def verify(
    claim: Annotated[
        str, typer.Argument(metavar="CLAIM", help="A claim's YAML file, or the directory of one that has begun.")
    ],
    directory: Annotated[
        str | None,
        typer.Option("--dir", help="The sweep directory, new or of this claim; default: ./sweeps/<name>-<time>."),
    ] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="The most trainings, in place of the claim's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all trainings, in place of the claim's.")] = None,
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast", help="Estimate by simulation how many trainings a verdict takes, and train nothing."
        ),
    ] = False,
    resources: Resources = _THIS_MACHINE,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Decide a claim: draw seeds until it is supported (exit code 0), refuted (5) or undecided at its budget (6)."""
    from attnsweep.search_spaces.claim import load_claim

    file_claim = None
    if Path(claim).suffix in (".yaml", ".yml"):
        file_claim = load_claim(Path(claim))
        file_claim = file_claim.but(
            **{name: value for name, value in (("budget", budget), ("seed", seed)) if value is not None}
        )
    elif directory is not None or seed is not None:
        flag = "--dir" if directory is not None else "--seed"
        fix = f"leave {flag} out, or name the claim's file instead of {claim}"
        raise UserError(
            flag,
            given=f"{flag} together with the directory {claim}",
            expected=f"{flag} only together with the file of a claim",
            fix=fix,
        )
    if forecast:
        _forecast(file_claim or _stored(claim), as_json=as_json)
        return
    processes.start_ahead()
    where = claim if file_claim is None else new_directory(file_claim.name, directory)
    verified = _decided(file_claim, where, resources, budget, trusted=trust)
    _conclude(verified, as_json=as_json)


def _decided(
    file_claim: "Claim | None", where: str, resources: Resources, budget: int | None, *, trusted: bool
) -> "Verified":
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    is_new = file_claim is not None and not SweepDirectory.is_there(where)
    if not is_new:
        opened(where, trusted=trusted)
    # Ray is not started before the claim is read, because a claim that is already decided does not need Ray.
    with importing(without=("pandas",)):
        from attnsweep.orchestrator.running.verifying import begin, decide

    latest = begin(file_claim, where, resources, console(stderr=True)) if file_claim is not None and is_new else None
    return decide(where, resources, console(stderr=True), claim=file_claim, budget=budget, latest=latest)


def _conclude(verified: "Verified", *, as_json: bool) -> None:
    from attnsweep.orchestrator.report.verdict_page import VERDICT_PAGE
    from attnsweep.orchestrator.storage.place_names import as_argument

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


def _forecast(claim: "Claim", *, as_json: bool) -> None:
    from attnsweep.orchestrator.analysis.verdict import power

    powers = power(claim)

    def show(on: "Console") -> None:
        for line in (claim.claim, f" budget {claim.budget} trainings; if each statement holds with a", *_lines):
            on.print(line, soft_wrap=True, markup=False, highlight=False)

    _lines = [margin_power.line() for margin_power in powers]
    answer(show, lambda: json.dumps([margin_power.as_json() for margin_power in powers]), as_json=as_json)


def _stored(directory: str) -> "Claim":
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    stored = SweepDirectory.open(directory).claim
    if stored is None:
        raise UserError(
            "CLAIM",
            given=directory,
            expected="a directory in which `attnsweep verify` has begun a claim",
            fix="give the file of the claim",
        )
    return stored
