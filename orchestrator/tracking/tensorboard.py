"""TensorBoard as a store of runs: a folder per sweep, with a run for each trial.

A run is one event file. It is renamed to its final name, which contains the number of trainings that it covers, once
it is complete.
"""

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.importing import import_extra
from attnsweep.orchestrator.storage.output_file import make_folder, writing_file
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialContent
from attnsweep.orchestrator.tracking.run_store import Runs, lock_of, outgrown

_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.attnsweep\.(\d+)")
_MOST_CHARACTERS = 120
"""The longest name of a folder."""


@dataclass(frozen=True)
class TensorBoardStore:
    """A folder of event files for TensorBoard's `--logdir`, as a store of runs (`RunStore`)."""

    folder: Path

    @property
    def label(self) -> str:
        return f"TensorBoard ({self.folder})"

    @property
    def command(self) -> tuple[str, ...]:
        return "tensorboard-sync", "--out", shlex.quote(str(self.folder))

    @property
    def lock_file(self) -> str:
        return lock_of("tensorboard-sync", str(self.folder.resolve()))

    def check(self) -> None:
        import_extra("tensorboard", "tensorboard", "tensorboard-sync")
        make_folder(self.folder, "--out")

    def runs_of(self, directory: SweepDirectory) -> "TensorBoardRuns":
        return TensorBoardRuns(directory, self.folder)

    @contextmanager
    def failures_refused(self) -> Iterator[None]:
        """Does nothing, because failures to write a file are raised as a `UserError` anyway."""
        yield


class TensorBoardRuns(Runs):
    """The runs of one sweep as TensorBoard event files in a folder (`Runs`).

    Attributes:
        folder: The folder of the sweep.
    """

    def __init__(self, directory: SweepDirectory, folder: Path) -> None:
        self._directory = directory
        self.folder = folder / f"{_as_name(directory.sweep)}-{directory.spec_sha256[:8]}"

    def logged(self, retried: Mapping[int, int | None]) -> tuple[set[int], dict[int, str]]:
        """Returns the trials that are logged, like `Runs.logged`. Unfinished runs are identified by the paths of their
        files."""
        n_before, finished, unfinished = outgrown(self._directory), set(), {}
        for path in self.folder.glob("#*/*"):
            folder, events = re.match(r"#(\d+)( |$)", path.parent.name), _NAME.fullmatch(path.name)
            if folder is None or events is None:
                continue
            trial, ended, n_trainings = int(folder[1]), int(events[1]), int(events[2])
            is_retried = trial in retried and ended != (retried[trial] or 0) // 1000
            if n_trainings in n_before or is_retried:
                unfinished[trial] = str(path)
            else:
                finished.add(trial)
        return finished, {trial: path for trial, path in unfinished.items() if trial not in finished}

    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        for content in contents:
            if content.trial in unfinished:
                Path(unfinished[content.trial]).unlink(missing_ok=True)
            folder = self.folder / _as_name(content.name)
            make_folder(folder, "--out")
            n_trainings = int(content.values.metrics["n_trainings"])
            name = f"events.out.tfevents.{content.ended // 1000}.attnsweep.{n_trainings}"
            with writing_file(folder / name) as path:
                path.write_bytes(_events(content))
            yield [content]


def _events(content: TrialContent) -> bytes:
    """Returns the content of a run's event file: parameters for TensorBoard's HParams page, curves by step, and
    aggregates."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer = RecordWriter(file)

    def write(**fields: Any) -> None:
        writer.write(Event(wall_time=content.ended / 1000, **fields).SerializeToString())

    parameters = {name: _as_hparam(value) for name, value in content.parameters.items()}
    write(file_version="brain.Event:2")
    write(summary=hparams_pb(parameters, trial_id=content.name, start_time_secs=content.started / 1000))
    points = [(name, 0, value) for name, value in content.values.metrics.items()]
    points += [(name, step, value) for name, curve in content.curves.items() for step, value in curve]
    for name, step, value in points:
        write(step=step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)]))
    return file.getvalue()


def _as_hparam(value: object) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else value_label(value)


def _as_name(text: str) -> str:
    """Replaces the characters of a text that cannot be in the name of a folder."""
    return re.sub(r"[^\w.=+#, -]", "_", text)[:_MOST_CHARACTERS].rstrip()
