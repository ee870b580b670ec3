"""How a command answers: with text for a reader, with JSON for scripts, and with an exit code."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

EXIT_FAULT, EXIT_MISTAKE, EXIT_SOME_FAILED, EXIT_CHANGED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130
EXIT_REFUTED, EXIT_UNDECIDED = 5, 6


def answer(
    show: "Callable[[Console], None]", to_json: Callable[[], str], *, as_json: bool, on_stderr: bool = False
) -> None:
    """Prints what a command found.

    Args:
        show: Prints it for a reader.
        to_json: Makes one line of JSON of it.
        as_json: Whether the JSON is wanted too. It has stdout for itself.
        on_stderr: Whether the text for a reader goes to stderr without JSON too.
    """
    show(console(stderr=as_json or on_stderr))
    if as_json:
        typer.echo(to_json())


def say(line: str) -> None:
    """Prints a line on stderr, without control characters."""
    from attnsweep.orchestrator.terminal import plain

    typer.echo(plain(line), err=True)


def say_shortfall(sweep: "SweepDirectory") -> None:
    """Says on stderr which shards of a sweep of several drivers have not begun, or are not finished."""
    if sweep.shortfall:
        say(f"{sweep.place}: {sweep.shortfall}")


def console(*, stderr: bool) -> "Console":
    """A console for untrusted text."""
    from attnsweep.orchestrator.terminal import PlainConsole

    return PlainConsole(stderr=stderr)
