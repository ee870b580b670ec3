"""Weights & Biases as a store of runs: a project per workload, a group per sweep, a run per trial.

Its client keeps a folder for each run that it logs, also offline. A run counts as finished once that folder holds an
empty file whose name contains the number of trainings that the run covers. The id of a run follows from the sweep and
the trial, so a run that is logged again replaces the earlier one on the server.
"""

import hashlib
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.importing import import_extra
from attnsweep.orchestrator.storage.output_file import make_folder
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialContent
from attnsweep.orchestrator.tracking.run_store import Runs, lock_of, outgrown
from attnsweep.orchestrator.tracking.runs import experiment_name
from attnsweep.orchestrator.tracking.store import in_one_line
from attnsweep.workloads.errors import UserError

_MARK = "attnsweep-finished"
_AT_ONCE = 16
"""The number of runs logged by one process of W&B's client, which takes half a second to start and end."""
_MOST_CHARACTERS = 128
"""The longest name of a project, a group or a run."""


@dataclass(frozen=True)
class WandbStore:
    """Weights & Biases as a store of runs (`RunStore`). The environment variables of its client determine account,
    project and mode.

    Attributes:
        folder: The folder in which the client creates its own folder `wandb`.
    """

    folder: Path
    label = "W&B"
    command = ("wandb-sync",)

    @classmethod
    def of_environment(cls) -> "WandbStore":
        """Makes the store from the environment; its local folder is `WANDB_DIR`, by default the working directory."""
        return cls(Path(os.environ.get("WANDB_DIR") or "."))

    @property
    def lock_file(self) -> str:
        return lock_of("wandb-sync", str(self.folder.resolve()))

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
    def __init__(self, directory: SweepDirectory, folder: Path) -> None:
        self._directory = directory
        self._folder = folder
        named = f"{directory.sweep} {directory.spec_sha256}"
        self._sum = hashlib.sha256(named.encode()).hexdigest()[:12]

    def logged(self, retried: Mapping[int, int | None]) -> tuple[set[int], dict[int, str]]:
        """Returns the trials that are logged, like `Runs.logged`. Unfinished runs are identified by the run ids of
        Weights & Biases."""
        n_before, finished, unfinished = outgrown(self._directory), set(), {}
        for folder in self._folder.glob(f"wandb/*run-*-{self._sum}-*"):
            trial = _number(folder)
            marks = [mark for mark in folder.glob(f"{_MARK}-*") if _number(mark) not in n_before]
            if any(trial not in retried or mark.read_text() == str(retried[trial]) for mark in marks):
                finished.add(trial)
            else:
                unfinished[trial] = self._id(trial)
        return finished, {trial: run_id for trial, run_id in unfinished.items() if trial not in finished}

    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        import wandb

        for start in range(0, len(contents), _AT_ONCE):
            batch = contents[start : start + _AT_ONCE]
            for content in batch:
                if content.trial in unfinished:
                    # The outdated offline run is removed, because `wandb sync` would otherwise send it along with the
                    # new run.
                    for folder in self._folder.glob(f"wandb/offline-run-*-{unfinished[content.trial]}"):
                        shutil.rmtree(folder)
            folders = [self._log(content) for content in batch]
            # W&B may still be writing a finished run: `teardown` waits until all runs are on disk.
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

        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or _as_name(experiment_name(self._directory.spec.workload)),
            group=self._directory.sweep[:_MOST_CHARACTERS],
            job_type="trial",
            name=content.name[:_MOST_CHARACTERS],
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


def _as_name(text: str) -> str:
    """Replaces the characters of a text that Weights & Biases refuses in the name of a project."""
    return re.sub(r"[/\\#?%:]", "_", text)[:_MOST_CHARACTERS]
