"""The command line in the tests' own process, as the console script runs it."""

import sys
from collections.abc import Callable

import pytest

from attnsweep.orchestrator import cli

Command = Callable[..., tuple[int, str, str]]
Mistake = Callable[..., str]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command: its exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attnsweep", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def mistake(command: Command) -> Mistake:
    """Runs a command with a mistake in it: what stderr says, after the name of the program."""

    def run(*arguments: str) -> str:
        code, out, error = command(*arguments)
        assert (code, out, error[:11]) == (2, "", "attnsweep: ")
        return error[11:]

    return run
