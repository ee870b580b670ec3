"""The edges of the console script: Ctrl-C before anything is imported, and the last lines of stderr."""

import subprocess
import sys

from typer.main import get_command
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app

INTERRUPTED_AT_ITS_START = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "attnsweep.orchestrator.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from attnsweep.orchestrator.console_script import main
main()
"""

LEAKING = """
import atexit, os, sys
from attnsweep.orchestrator.cli import main

def leak():
    os.write(2, b"nanobind: leaked 2 instances!\\n - leaked instance 0x7f of type DuckDBPyConnection\\n")
    os.write(2, b"nanobind: leaked 1 types!\\n - ... skipped remainder\\nFatal Python error: Aborted\\n")

# As if they were loaded: whether they leak depends on their versions.
sys.modules |= {"torch": sys, "duckdb": sys}
atexit.register(leak)
sys.argv = ["attnsweep", "--version"]
main()
"""


def _run(script: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback() -> None:
    assert _run(INTERRUPTED_AT_ITS_START) == (130, "")


def test_of_the_last_lines_only_known_ones_are_hidden() -> None:
    assert _run(LEAKING) == (0, "Fatal Python error: Aborted\n")


def test_the_help_of_no_command_shows_a_value_for_a_switch() -> None:
    commands = [[], *([name] for name in get_command(app).commands)]  # type: ignore[attr-defined]
    shown = [CliRunner().invoke(app, [*words, "--help"], catch_exceptions=False).stdout for words in commands]
    assert len(shown) > 20
    assert not [words for words, text in zip(commands, shown, strict=True) if "<bool>" in text or "BOOLEAN" in text]
