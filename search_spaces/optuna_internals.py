"""The private names of Optuna that attnsweep uses. Importing this module fails if the installed Optuna lacks one of
them."""

from collections.abc import Container, Sequence
from importlib.metadata import version

import optuna
from optuna import Study
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from attnsweep.workloads.errors import UserError

TESTED = "5.0"

try:
    from optuna.study._constrained_optimization import _CONSTRAINTS_KEY as CONSTRAINTS_KEY

    _NEEDED = optuna.Study._get_trials
except (ImportError, AttributeError) as error:
    expected = f"Optuna version {TESTED}, which attnsweep was tested with ({error})"
    fix = f"install the tested version with: pip install 'optuna=={TESTED}.*'"
    raise UserError("optuna", given=f"Optuna version {version('optuna')}", expected=expected, fix=fix) from error


def constraint_attribute(name: str) -> str:
    """Returns the name of the trial attribute in which Optuna's `Trial.set_constraint` stores a constraint."""
    return f"{CONSTRAINTS_KEY}:{name}"


class InformedStudy(Study):
    """Its sampler also sees complete trials of earlier sweeps, before its own; they are not in its storage."""

    def __init__(self, name: str, storage: BaseStorage, sampler: BaseSampler, earlier: Sequence[FrozenTrial]) -> None:
        super().__init__(name, storage, sampler)
        self._earlier = earlier

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        own = super()._get_trials(deepcopy, states, use_cache)
        if not self._earlier or (states is not None and TrialState.COMPLETE not in states):
            return own
        return [*self._earlier, *own]
