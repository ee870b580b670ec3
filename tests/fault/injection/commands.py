"""A process that calls attnsweep's command line again and again, with one failing call of the C library at a time.

Python and its libraries are imported once, which takes longer than a small sweep. Each request is a line of JSON on
stdin, each answer one on stdout.
"""

import io
import json
import os
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from tests.fault.injection.calls import NEVER, OF_A_BAD_DISK, Call, Calls, compiled

_STATE = "FAILING_CALLS_STATE"


@dataclass(frozen=True)
class Answer:
    """How a command ended.

    Attributes:
        code: Its exit code.
        said: What it wrote to stdout and stderr.
        traceback: Of an exception that none of ours has caught; empty if there was none.
        failed: The call that failed; `None` if there was no call of that number.
        n_calls: The number of calls about the folder's files.
    """

    code: int
    said: str
    traceback: str
    failed: Call | None
    n_calls: int


class Commands:
    """The process, seen from a test.

    Args:
        compiler: The C compiler.
        folder: For the library and its state.
    """

    def __init__(self, compiler: str, folder: Path) -> None:
        library, state = compiled(compiler, folder), folder / "state"
        self._n_requests = 0
        self._calls = Calls(state)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"LD_PRELOAD": str(library), _STATE: str(state)},
        )

    def call(
        self,
        *command: str,
        below: Path,
        number: int = NEVER,
        errors: dict[str, int] = OF_A_BAD_DISK,
        last: int | None = None,
    ) -> Answer:
        """Calls a command, in which one call about files of a folder fails; by default none does."""
        self._n_requests += 1
        request = {
            "request": self._n_requests,
            "command": command,
            "below": str(below),
            "number": number,
            "errors": errors,
            "last": last,
        }
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        answer: dict[str, Any] = {"request": 0}
        while answer.pop("request") != self._n_requests:  # A test that timed out has left its answer in the pipe.
            line = answers.readline()
            assert line, "the process has ended"
            answer = json.loads(line)
        made = self.made()
        failed = next((call for call in made if call.error), None)
        return Answer(**answer, failed=failed, n_calls=len(made))

    def made(self) -> list[Call]:
        """The calls of the last command."""
        return self._calls.made()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closes the pipes too.
        self._process.communicate()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    # Processes that attnsweep starts are not to be counted.
    del os.environ["LD_PRELOAD"]
    calls = Calls(Path(os.environ.pop(_STATE)))
    import torch

    from attnsweep.orchestrator.cli import main

    torch.set_num_threads(1)
    for line in requests:
        request = json.loads(line)
        said, code, trace = io.StringIO(), 0, ""
        sys.argv = ["attnsweep", *request["command"]]
        failing = calls.failing(Path(request["below"]), request["number"], request["errors"], request["last"])
        with redirect_stdout(said), redirect_stderr(said), failing:
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:  # noqa: BLE001  # Reported to the test.
                code, trace = 1, traceback.format_exc()
        answer = {"request": request["request"], "code": code, "said": said.getvalue(), "traceback": trace}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _serve(sys.stdin, answers)
