"""What is added to a sweep after its start: trials, and replicates of every trial."""

from dataclasses import dataclass

from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True)
class Extension:
    """Trials and replicates to add; nothing by default."""

    trials: int = 0
    replicates: int = 0

    def __bool__(self) -> bool:
        return bool(self.trials or self.replicates)

    def of(self, spec: Sweep) -> Sweep:
        """The spec with what is added, which may be negative to take it away again.

        Raises:
            UserError: If a rule decides how many replicates a trial gets.
        """
        if not self.replicates:
            return spec.but(trials=spec.trials + self.trials) if self.trials else spec
        if not isinstance(spec.replicates, int):
            raise UserError(
                "--replicates",
                given=f"+{self.replicates}",
                expected=f"a sweep with a fixed number of replicates; in this one a rule decides: {spec.replicates}",
                fix="add trials, or run a new sweep with another rule",
            )
        return spec.but(trials=spec.trials + self.trials, replicates=spec.replicates + self.replicates)
