"""TensorBoard and Weights & Biases as stores of runs. Each sweep has a folder or a group there, and each trial a run.

TensorBoard: a run is one event file. It is renamed to its final name, which contains the number of trainings that it
covers, once it is complete.

Weights & Biases: a project for each workload. The client keeps a folder for each run that it logs, also offline. A run
counts as finished once that folder holds a file whose name contains the number of trainings that the run covers. The id
of a run follows from the sweep and the trial, so a run that is logged again replaces the earlier one on the server.
"""

import hashlib
import io
import os
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.importing import import_extra
from attnsweep.orchestrator.storage.output_file import make_folder, writing_file
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialContent
from attnsweep.orchestrator.tracking.run_store import Found, Runs, RunStore
from attnsweep.orchestrator.tracking.runs import experiment_name
from attnsweep.orchestrator.tracking.store import in_one_line
from attnsweep.workloads.errors import UserError

_EVENTS = re.compile(r"events\.out\.tfevents\.(\d+)\.attnsweep\.(\d+)")
_LONGEST_FOLDER, _LONGEST_NAME = 120, 128
"""The most characters of a folder for TensorBoard, and of a project, a group or a run of Weights & Biases."""
_MARK = "attnsweep-finished"
_AT_ONCE = 16
"""The number of runs logged by one process of W&B's client, which takes half a second to start and end."""


@dataclass(frozen=True)
class TensorBoardStore(RunStore):
    """A folder of TensorBoard event files to which sweeps are logged; `tensorboard --logdir` shows it."""

    folder: Path

    @property
    def label(self) -> str:
        return f"TensorBoard ({self.folder})"

    @property
    def command(self) -> tuple[str, ...]:
        return "tensorboard-sync", "--out", shlex.quote(str(self.folder))

    @property
    def address(self) -> str:
        return str(self.folder.resolve())

    def check(self) -> None:
        import_extra("tensorboard", "tensorboard", "tensorboard-sync")
        make_folder(self.folder, "--out")

    def runs_of(self, directory: SweepDirectory) -> "TensorBoardRuns":
        return TensorBoardRuns(directory, self.folder)


class TensorBoardRuns(Runs):
    """The runs of one sweep as TensorBoard event files in the folder `folder`. A run is identified by the path of its
    file."""

    resolution = 1000

    def __init__(self, directory: SweepDirectory, folder: Path) -> None:
        super().__init__(directory)
        name = _as_folder(directory.sweep)
        self.folder = folder / f"{name}-{directory.spec_sha256[:8]}"

    def _found(self) -> Iterable[Found]:
        for path in self.folder.glob("#*/*"):
            folder, events = re.match(r"#(\d+)( |$)", path.parent.name), _EVENTS.fullmatch(path.name)
            if folder is not None and events is not None:
                yield Found(int(folder[1]), str(path), True, int(events[2]), 1000 * int(events[1]))

    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        for content in contents:
            if content.trial in unfinished:
                Path(unfinished[content.trial]).unlink(missing_ok=True)
            folder = self.folder / _as_folder(content.name)
            make_folder(folder, "--out")
            n_trainings = int(content.values.metrics["n_trainings"])
            name = f"events.out.tfevents.{content.ended // 1000}.attnsweep.{n_trainings}"
            with writing_file(folder / name) as path:
                path.write_bytes(_events(content))
            yield [content]


def _events(content: TrialContent) -> bytes:
    """Returns the content of the TensorBoard event file of one trial's run: the parameters for the HParams page, the
    loss curves, and the results aggregated over the trial's trainings."""
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


def _as_folder(text: str) -> str:
    """Makes a folder's name from a text: replaces characters that such a name cannot contain by `_`, and shortens a
    long text."""
    return re.sub(r"[^\w.=+#, -]", "_", text)[:_LONGEST_FOLDER].rstrip()


def _as_hparam(value: object) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else value_label(value)


@dataclass(frozen=True)
class WandbStore(RunStore):
    """Weights & Biases as a store to which sweeps are logged. The environment variables of its client determine
    account, project and mode.

    Attributes:
        folder: The folder in which the client creates its own folder `wandb`.
    """

    folder: Path
    label = "W&B"
    command = ("wandb-sync",)

    @classmethod
    def of_environment(cls) -> "WandbStore":
        """Returns a store that logs runs to Weights & Biases. Its client keeps files in the folder that the environment
        variable `WANDB_DIR` names, by default in the working directory."""
        return cls(Path(os.environ.get("WANDB_DIR") or "."))

    @property
    def address(self) -> str:
        return str(self.folder.resolve())

    def check(self) -> None:
        import_extra("wandb", "wandb", "wandb-sync")
        # If the folder were missing, W&B's client would write to another folder, where later calls would not find the
        # run.
        make_folder(self.folder, "WANDB_DIR")

    def runs_of(self, directory: SweepDirectory) -> "WandbRuns":
        return WandbRuns(directory, self.folder)

    @contextmanager
    def failures_refused(self) -> Iterator[None]:
        import wandb

        try:
            yield
        except (wandb.errors.Error, OSError) as error:
            raise UserError(
                "wandb-sync",
                given=in_one_line(error),
                expected="a W&B server that can be reached",
                fix="run `wandb login`, or set WANDB_MODE=offline and run `wandb sync` later",
            ) from error


class WandbRuns(Runs):
    """The runs of one sweep in the folders of the W&B client. A run is identified by its id at Weights & Biases."""

    def __init__(self, directory: SweepDirectory, folder: Path) -> None:
        super().__init__(directory)
        self._folder = folder
        named = f"{directory.sweep} {directory.spec_sha256}"
        self._sum = hashlib.sha256(named.encode()).hexdigest()[:12]

    def _found(self) -> Iterable[Found]:
        for folder in self._folder.glob(f"wandb/*run-*-{self._sum}-*"):
            trial = _number(folder)
            yield Found(trial, self._id(trial), False, None, None)
            for mark in folder.glob(f"{_MARK}-*"):
                ended = mark.read_text()
                yield Found(trial, self._id(trial), True, _number(mark), int(ended) if ended else None)

    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        import wandb

        for start in range(0, len(contents), _AT_ONCE):
            batch = contents[start : start + _AT_ONCE]
            for content in batch:
                if content.trial in unfinished:
                    # The offline run is outdated and is removed. Otherwise `wandb sync` would send it together with the
                    # new run.
                    for folder in self._folder.glob(f"wandb/offline-run-*-{unfinished[content.trial]}"):
                        shutil.rmtree(folder)
            folders = [self._log(content) for content in batch]
            # W&B may still be writing a run that has finished. `teardown` waits until all runs are on disk.
            wandb.teardown()
            for content, folder in zip(batch, folders, strict=True):
                self._mark(content, folder)
            yield batch

    def _mark(self, content: TrialContent, folder: Path) -> None:
        (folder / f"{_MARK}-{content.values.metrics['n_trainings']:.0f}").write_text(str(content.ended))

    def _id(self, trial: int) -> str:
        return f"{self._sum}-{trial}"

    def _log(self, content: TrialContent) -> Path:
        """Logs the run of one trial and returns the folder of the run."""
        import wandb

        workload = re.sub(r"[/\\#?%:]", "_", experiment_name(self._directory.spec.workload))
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or workload[:_LONGEST_NAME],
            group=self._directory.sweep[:_LONGEST_NAME],
            job_type="trial",
            name=content.name[:_LONGEST_NAME],
            id=self._id(content.trial),
            config={**content.parameters, **content.tags},
            dir=str(self._folder),
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        )
        folder = Path(run.settings.sync_dir)
        for step, values in sorted(_by_step(content.curves).items()):
            run.log(values, step=step)
        run.summary.update(content.values.metrics)
        run.finish()
        return folder


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _by_step(curves: Mapping[str, Sequence[tuple[int, float]]]) -> dict[int, dict[str, Any]]:
    values_by_step: dict[int, dict[str, Any]] = defaultdict(dict)
    for name, curve in curves.items():
        for step, value in curve:
            values_by_step[step][name] = value
    return values_by_step
