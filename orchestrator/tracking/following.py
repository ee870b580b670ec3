"""The process `attnsweep mlflow-sync DIR --follow` that a run starts, so that MLflow never slows or stops a sweep."""

import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryFile

from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import MAX_RUNS, has_runs_of_trials
from attnsweep.orchestrator.tracking.store import as_shell_word, database_of, tracking_uri

_PROGRAM = "from attnsweep.orchestrator.console_script import main; main()"
_PATIENCE_SECONDS = 60.0
"""How long the end of a sweep waits without output of the process: a server may accept connections and never answer."""


class Following:
    """The process, which may die, be late or find no MLflow: the next `attnsweep mlflow-sync` logs what is missing.

    Attributes:
        problem: After `close`, in a line, why MLflow lacks something.
    """

    def __init__(self, directory: SweepDirectory) -> None:
        self._directory, self._uri = directory, tracking_uri()
        self._process: subprocess.Popen[bytes] | None = None
        self.problem: str | None = None
        try:
            if (database := database_of(self._uri)) is not None:
                database.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.problem = str(error)
            return
        self._output = TemporaryFile()  # noqa: SIM115  # `close` closes it
        # With `-P`, no file in the working directory stands in for a library. In a session of its own, the process
        # does not get the driver's Ctrl-C.
        command = [sys.executable, "-P", "-c", _PROGRAM, "mlflow-sync", str(directory.place), "--follow"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True
        )

    def close(self, seconds: float | None) -> None:
        """Waits until all is logged, at most some seconds, or for `None` as long as the process prints its progress."""
        if self._process is None:
            return
        patience, n_bytes = _PATIENCE_SECONDS if seconds is None else seconds, -1
        while self._process.poll() is None and (seconds is None or n_bytes < 0) and n_bytes != self._n_bytes():
            n_bytes = self._n_bytes()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        if self._process.poll() is None:
            self._process.kill()
            self.problem = f"not done within {patience:.2g} s"
        elif self._process.returncode:
            self._output.seek(0)
            lines = self._output.read().decode(errors="replace").strip().splitlines()
            self.problem = lines[-1].removeprefix("attnsweep: ") if lines else f"exit code {self._process.returncode}"
        self._process.wait()
        self._process = None
        self._output.close()

    def in_words(self) -> str:
        """After `close`: a shell command that shows the sweep in MLflow, or why MLflow lacks some of it."""
        if self.problem is not None:
            later = f"once it answers: attnsweep mlflow-sync {as_argument(self._directory.place)}"
            return f"lacks some of the sweep: {self.problem}; {later}"
        shown = f"mlflow ui --backend-store-uri {as_shell_word(self._uri)}"
        if not has_runs_of_trials(self._directory.spec):
            shown += f" (one run and the table trials.csv: more than {MAX_RUNS:,} trials have no runs of their own)"
        return shown

    def _n_bytes(self) -> int:
        return self._output.seek(0, 2)
