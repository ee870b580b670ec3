"""The user's shell commands that a run calls at its end, with JSON on their standard input."""

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
"""The command's stdout goes to stderr, so that it does not mix with our own output on stdout."""

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
    """Runs a shell command with a text on its standard input. If the command fails, only a warning is shown."""
    try:
        done = subprocess.run(
            command, shell=True, input=content + "\n", text=True, stdout=_STDERR, timeout=_MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        say(f"attnsweep: gave up on {without_credentials(command)!r} after {_MOST_SECONDS} s")
    else:
        if done.returncode:
            say(f"attnsweep: {without_credentials(command)!r} ended with exit code {done.returncode}")


@contextmanager
def telling_faults(command: str | None) -> Iterator[None]:
    """A context that calls `tell_fault` when a fault of the machine ends the block, and then raises the fault again."""
    try:
        yield
    except (SweepError, PoolError) as fault:
        tell_fault(command, str(fault.path) if isinstance(fault, SweepError) else None, str(fault))
        raise


def tell_fault(command: str | None, directory: str | None, fault: str) -> None:
    """Runs the user's shell command, if one is given, with the JSON object `{"directory": ..., "error": ...}` on the
    command's standard input."""
    if command is not None:
        call(command, json.dumps({"directory": directory, "error": without_credentials(fault)}))
