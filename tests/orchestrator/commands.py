"""The command line, called in the tests' own process."""

import contextlib
import io
import json
import signal
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from attnsweep.orchestrator import cli


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, and what it printed on stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout, as `--json` prints it."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


def command(*words: object) -> Ended:
    """Runs `attnsweep WORDS`. An exception that the command line does not turn into a message is raised."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["attnsweep", *map(str, words)])
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        # A command that ends as on Ctrl-C leaves SIGINT to the system: in a later test it would end the process.
        signal.signal(signal.SIGINT, handler)
    return Ended(int(ended.value.code or 0), out.getvalue(), err.getvalue())
