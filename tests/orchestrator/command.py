"""Runs a command of `attnsweep` in this process, as a process of its own would."""

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest

from attnsweep.orchestrator import cli


@dataclass(frozen=True)
class Ended:
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout, as `--json` prints it."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


def run(*words: object) -> Ended:
    """Runs `attnsweep WORDS`."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["attnsweep", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return Ended(int(ended.value.code or 0), out.getvalue(), err.getvalue())
