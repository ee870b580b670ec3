"""An opened sweep whose trainings can be loaded as modules and continued from a step."""

from typing import TYPE_CHECKING, Literal

from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sources import TRIALS_APART

if TYPE_CHECKING:
    from torch import nn

    from attnsweep.orchestrator.inspection.fork import Fork
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory


class OpenedSweep(SweepData):
    """A sweep that was opened for analysis: its tables and statistics, and its trainings as modules."""

    def module(self, training: str, *, step: int | None = None) -> "nn.Module":
        """The module of one training, in eval mode, on the CPU.

        It has the weights that `attnsweep run --keep-weights` kept. Without them, or with a `step`, the training is
        repeated to its end; a warning is logged if it ends otherwise than recorded.

        Args:
            training: `TRIAL/REPLICATE`, a `training_id` or its beginning.
            step: The number of steps after which to take the weights; by default all.
        """
        from attnsweep.orchestrator.inspection.trained_module import trained_module

        return trained_module(*self._at_home(training), step).module

    def fork(
        self,
        training: str,
        *,
        at: int,
        n: int = 256,
        redraw: Literal["data", "noise", "kick"] = "data",
        size: float = 0.01,
    ) -> "Fork":
        """Continues one training many times from a step, to estimate the chance of each outcome given the training's
        state there.

        Args:
            training: `TRIAL/REPLICATE`, a `training_id` or its beginning.
            at: The step, before the training's end.
            redraw: What differs in the `n` continuations: `data`, the data drawn after the step; `noise`, the dropout
                masks; `kick`, normal noise that is added once to the parameters, for problems that draw nothing.
            size: Of the kick, relative to the root mean square of each parameter tensor, or of all if that is zero.
        """
        from attnsweep.orchestrator.inspection.fork import fork

        directory, name = self._at_home(training)
        return fork(directory, name, step=at, redraw=redraw, n=n, size=size)

    def _at_home(self, training: str) -> "tuple[SweepDirectory, str]":
        """The sweep of a training, and its name there."""
        last = len(self.directories) - 1
        trial, slash, replicate = training.partition("/")
        if last and slash and trial.isdecimal():
            if not self._trials_apart:
                homes = {each.shard.index: each for each in self.directories}
                return homes.get(int(trial) % self.directories[0].shard.count, self.directories[0]), training
            sweep = min(int(trial) // TRIALS_APART, last)
            return self.directories[sweep], f"{int(trial) - sweep * TRIALS_APART}/{replicate}"
        for directory, ledger in zip(self.directories, self._ledgers, strict=True):
            ids = ledger.trainings(columns=["training_id"])["training_id"].to_pylist() if last else [training]
            if any(training_id.startswith(training) for training_id in ids):
                return directory, training
        return self.directories[0], training


def open_sweep(directory: PlaceName, *more: PlaceName) -> OpenedSweep:
    """Opens a sweep for analysis, or several sweeps of one workload as if they were one. The sweep may still be
    running.

    Args:
        directory: A sweep directory, or `s3://BUCKET/PREFIX`.
        more: Further sweeps, whose trials are numbered from 1,000,000, 2,000,000, ..., unless all are shards of
            one sweep.
    """
    return OpenedSweep.open(directory, *more)
