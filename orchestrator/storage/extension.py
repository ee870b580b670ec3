"""Trials and replicates that are added to a sweep after its start."""

from dataclasses import dataclass

from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True)
class Extension:
    """An extension of a sweep: how many trials, and how many replicates per trial, to add."""

    trials: int = 0
    replicates: int = 0

    def __bool__(self) -> bool:
        return bool(self.trials or self.replicates)

    def of(self, spec: Sweep) -> Sweep:
        """Returns the spec with the trials and replicates of this extension added. Negative numbers remove them again.

        Raises:
            UserError: If a rule decides how many replicates a trial gets, or a pruner which trials go on.
        """
        if not self.replicates:
            return spec.but(trials=spec.trials + self.trials) if self.trials else spec
        if not isinstance(spec.replicates, int):
            raise UserError(
                "--replicates",
                given=f"+{self.replicates}",
                expected="a sweep with a fixed number of replicates, but in this sweep a rule decides:"
                f" {spec.replicates}",
                fix="add trials, or run a new sweep with another rule",
            )
        if spec.pruner is not None:
            raise UserError(
                "--replicates",
                given=f"+{self.replicates}",
                expected="a sweep without a pruner, because the pruner has judged trials by their first replicates",
                fix="add trials, or run a new sweep with more replicates",
            )
        return spec.but(trials=spec.trials + self.trials, replicates=spec.replicates + self.replicates)
