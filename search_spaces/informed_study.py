"""An Optuna study that also shows its sampler the trials of earlier sweeps."""

from collections.abc import Container, Sequence

from optuna import Study
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState


class InformedStudy(Study):
    """A study whose sampler sees the trials of earlier sweeps as well, placed before the study's own trials.

    The earlier trials are in no storage, so they take no numbers.

    Args:
        name: The study's name in the storage.
        storage: Holds the study's own trials.
        sampler: The sampler of the study.
        earlier: The trials of earlier sweeps, all complete.
    """

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
