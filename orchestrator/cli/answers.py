import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


EXIT_FAULT, EXIT_MISTAKE, EXIT_SOME_FAILED, EXIT_CHANGED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130
EXIT_REFUTED, EXIT_UNDECIDED = 5, 6


_stdout: TextIO | None = None
"""The command's stdout, while the user's code prints to stderr; `None` while it can't print."""


def running_users_code(command: Callable[..., None]) -> Callable[..., None]:
    """All that prints, such as the user's code, prints to stderr, except `answer`, `tell` and `console`."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        global _stdout
        before, _stdout = _stdout, _stdout or sys.stdout
        try:
            with redirect_stdout(sys.stderr):
                command(*args, **options)
        finally:
            _stdout = before

    return run


def tell(line: object) -> None:
    """On the command's stdout."""
    typer.echo(line, file=_stdout)


def answer(
    show: "Callable[[Console], None]", to_json: Callable[[], str], *, as_json: bool, on_stderr: bool = False
) -> None:
    """Prints a command's result as text; `as_json` prints JSON to stdout too, and the text to stderr."""
    show(console(stderr=as_json or on_stderr))
    if as_json:
        tell(to_json())


def say(line: str) -> None:
    """On stderr, with control characters escaped."""
    from attnsweep.orchestrator.terminal import plain

    typer.echo(plain(line), err=True)


def console(*, stderr: bool) -> "Console":
    """Escapes control characters, because texts may come from untrusted files."""
    from attnsweep.orchestrator.terminal import PlainConsole

    return PlainConsole(file=None if stderr else _stdout, stderr=stderr)


def listing(*columns: str) -> "Table":
    """A table without ruled lines, for names and long texts."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("sweep", "workload", "parameter"))
    return table
