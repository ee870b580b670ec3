"""Runs a command for the console script, and ends with its exit code. A user's mistake gives one line, no traceback."""

import errno
import logging
import os
import re
import signal
import sys

import typer
from typer.exceptions import TyperException

from attnsweep.orchestrator.cli.answers import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE
from attnsweep.orchestrator.cli.app import app
from attnsweep.orchestrator.cli.arguments import check_texts
from attnsweep.orchestrator.running.signals import signals_as_ctrl_c
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import PoolError, StoreError, StoreMistakeError, SweepError, in_words
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.user_state import name_unknown_user
from attnsweep.workloads.errors import UserError

_TYPED_CHARACTERS = 400
"""Of Typer's messages, which repeat what the user typed."""


def main() -> None:
    if sys.stdout is None:
        # The next opened file would get the descriptor 1 of a closed stdout, and prints would go to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout = os.fdopen(1, "w")
    name_unknown_user()
    # Matplotlib warns if it cannot store its cache in the home directory, which does no harm.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        with signals_as_ctrl_c():
            check_texts(sys.argv[1:])
            code = app(standalone_mode=False)
            _flush()
            if code == EXIT_INTERRUPTED:
                raise KeyboardInterrupt
            sys.exit(code)
    except UserError as error:
        _complain(str(error))
        is_fault = isinstance(error, StoreError) and not isinstance(error, StoreMistakeError)
        sys.exit(EXIT_FAULT if is_fault else EXIT_MISTAKE)
    except SweepError as fault:
        _complain(f"{fault}\nonce the cause is fixed, continue with: attnsweep resume {as_argument(fault.path)}")
        sys.exit(EXIT_FAULT)
    except PoolError as fault:
        _complain(str(fault))
        sys.exit(EXIT_FAULT)
    except TyperException as mistake:
        # Empty if Typer has printed the help, for a command without arguments.
        if message := mistake.format_message().rstrip("."):
            if assignment := re.search(r"extra argument.*?\((\w+=[^\s)]+)", message):
                message += f"; to fix a parameter write --set {assignment[1]}"
            _complain(f"{message[:_TYPED_CHARACTERS]}; see attnsweep --help")
        sys.exit(EXIT_MISTAKE)
    except (KeyboardInterrupt, typer.Abort):
        # Otherwise a second Ctrl-C would print a traceback while Python exits.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as fault:
        if fault.filename is not None:
            _complain(in_words(fault))
            sys.exit(EXIT_MISTAKE if isinstance(fault, PermissionError) else EXIT_FAULT)
        # An error about stdout has no file name.
        if fault.errno != errno.ENOSPC:
            raise
        # Python would try to write the rest of the output again at exit, and fail again.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        _complain(f"cannot write the output: {fault.strerror}")
        sys.exit(EXIT_FAULT)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _complain(text: str) -> None:
    """On stderr, without credentials, and with control characters escaped."""
    from attnsweep.orchestrator.terminal import plain

    typer.echo(f"attnsweep: {plain(without_credentials(text))}", err=True)
