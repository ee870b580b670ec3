"""Commands of the user's that a run calls at its end, with JSON on their standard input."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer

from attnsweep.orchestrator.cli.answers import say
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import PoolError, SweepError

_MOST_SECONDS = 60
_STDERR = 2
"""What the command prints is no part of our own answer on stdout."""

at_the_end = partial(typer.Option, rich_help_panel="At the end")

OnFinish = Annotated[
    str | None,
    at_the_end(metavar="COMMAND", help="Shell command to call when the sweep is finished: its summary is on stdin."),
]
OnFailure = Annotated[
    str | None,
    at_the_end(metavar="COMMAND", help="Shell command to call when a fault ends the run: JSON with it on stdin."),
]


def call(command: str, content: str) -> None:
    """Calls a command with a text on its standard input. Its own failure is a warning: the sweep has ended."""
    try:
        done = subprocess.run(
            command, shell=True, input=content + "\n", text=True, stdout=_STDERR, timeout=_MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        say(f"attnsweep: gave up on {without_credentials(command)!r} after {_MOST_SECONDS} s")
    else:
        if done.returncode:
            said = without_credentials(command)
            say(f"attnsweep: {said!r} ended with exit code {done.returncode}")


@contextmanager
def telling_faults(command: str | None) -> Iterator[None]:
    """Calls a command with `{"directory", "error"}` when a fault ends the run, and raises the fault again."""
    try:
        yield
    except (SweepError, PoolError) as fault:
        tell_fault(command, str(fault.path) if isinstance(fault, SweepError) else None, str(fault))
        raise


def tell_fault(command: str | None, directory: str | None, fault: str) -> None:
    """Calls a command, if there is one, with `{"directory", "error"}`."""
    if command is not None:
        call(command, json.dumps({"directory": directory, "error": without_credentials(fault)}))
