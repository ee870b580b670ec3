"""What commands that run sweeps do at their end."""

import json
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from attnsweep.orchestrator.cli.answers import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_SOME_FAILED, console, say, tell
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import PoolError, SweepError
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.orchestrator.running.summary import Summary
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_MAX_SECONDS = 60

at_the_end = partial(Option, rich_help_panel="At the end")

OnFinish = Annotated[
    str | None,
    at_the_end(
        metavar="COMMAND", help="Shell command to call when the sweep ends without a fault: its summary is on stdin."
    ),
]
OnFailure = Annotated[
    str | None,
    at_the_end(metavar="COMMAND", help="Shell command to call on a fault, with JSON that tells it on stdin."),
]


def conclude(
    summary: "Summary",
    began: float,
    keep_weights: Collection[int],
    on_finish: str | None,
    on_failure: str | None,
    *,
    report: bool,
    as_json: bool,
) -> None:
    """Prints the summary, calls the user's shell commands, keeps weights, draws the report; raises `Exit` unless all is
    well. `began`: by the monotonic clock."""
    summary.print(console(stderr=True), report=report)
    try:
        _finish(replace(summary, seconds=time.monotonic() - began), keep_weights, on_finish, on_failure, report=report)
    finally:
        summary = replace(summary, seconds=time.monotonic() - began)
        say(summary.pace)
        if as_json:
            tell(summary.to_json())


def _finish(
    summary: "Summary", keep_weights: Collection[int], on_finish: str | None, on_failure: str | None, *, report: bool
) -> None:
    if not summary.finished:
        raise typer.Exit(EXIT_INTERRUPTED)
    place = name_of(summary.directory.place)
    if summary.fault is not None:
        tell_fault(on_failure, place, summary.fault)
    elif on_finish is not None:
        call(on_finish, summary.to_json())
    unkept = _keep_weights(summary.directory, keep_weights)
    if unkept is not None:
        say(f"attnsweep: {unkept}")
        tell_fault(on_failure, place, unkept)
    if report:
        _draw_report(summary)
    if summary.fault is not None or unkept is not None:
        raise typer.Exit(EXIT_FAULT)
    if summary.n_failed or summary.refused:
        raise typer.Exit(EXIT_SOME_FAILED)


def _keep_weights(sweep: "SweepDirectory", trials: Collection[int]) -> str | None:
    """Returns an error's text; `None` if all is well."""
    if not trials:
        return None
    from attnsweep.orchestrator.inspection.kept_weights import keep_weights
    from attnsweep.orchestrator.terminal import plain

    try:
        keep_weights(sweep, trials, say)
    except Exception as error:  # noqa: BLE001  # The sweep has finished and its rows are kept, whatever failed here.
        place = as_argument(sweep.place)
        retry = f"attnsweep resume {place}" if {*trials} <= {*sweep.keep_weights} else "the same command"
        kind = "" if isinstance(error, UserError | SweepError) else f"{type(error).__name__}: "
        cause = plain(without_credentials(f"{kind}{error}"))
        return f"the sweep has finished, but weights in {place}/weights are missing ({cause}); to try again: {retry}"
    return None


def _draw_report(summary: "Summary") -> None:
    """Unless the present one shows the latest rows."""
    from attnsweep.orchestrator.report.page import make_report
    from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE

    place = summary.directory.place
    if not summary.has_trained and (place / REPORT_FILE).is_file():
        return
    # Ctrl-C skips the drawing, which takes seconds.
    with suppress(KeyboardInterrupt), console(stderr=True).status("drawing the report; Ctrl-C skips it"):
        try:
            make_report([place]).keep(place)
        except Exception as error:  # noqa: BLE001  # fits, drawing and disk raise anything, and the sweep is finished
            say(f"no report: {without_credentials(str(error))}; to draw it: attnsweep report {as_argument(place)}")


def call(command: str, content: str) -> None:
    """Gives a shell command this standard input; warns if it fails."""
    named = f"attnsweep: {without_credentials(command)!r}"
    # Its stdout goes to stderr (2), to keep it apart from ours.
    settings: dict[str, Any] = {"shell": True, "text": True, "stdout": 2, "timeout": _MAX_SECONDS, "check": False}
    try:
        done = subprocess.run(command, input=content + "\n", **settings)
    except subprocess.TimeoutExpired:
        say(f"{named} was given up after {_MAX_SECONDS} s")
    else:
        if done.returncode:
            say(f"{named} ended with exit code {done.returncode}")


@contextmanager
def telling_faults(command: str | None) -> Iterator[None]:
    """Calls the user's shell command if an error of the machine, such as a full disk, ends the block."""
    try:
        yield
    except (SweepError, PoolError) as fault:
        tell_fault(command, name_of(fault.path) if isinstance(fault, SweepError) else None, str(fault))
        raise


def tell_fault(command: str | None, directory: str | None, fault: str) -> None:
    """With the JSON object `{"directory": ..., "error": ...}` as the command's standard input."""
    if command is not None:
        call(command, json.dumps({"directory": directory, "error": without_credentials(fault)}))
