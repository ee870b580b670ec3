"""Trials written to the journal entry by entry, in Optuna's form, without Optuna's study in memory."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.trial import TrialState

from attnsweep.orchestrator.running.journal import Operation, StudyLog
from attnsweep.search_spaces.dimensions import Scalar

_WRITER = "attnsweep"
"""Optuna wants each entry to name its writer. It compares the name with its own only to report a writer's mistakes."""


class TrialEntries:
    """Adds trials, their values and their ends to a sweep's journal.

    For samplers that do not learn: nothing of a trial stays in memory, and an entry costs a tenth of Optuna's. Whoever
    opens the journal with Optuna finds the study that Optuna would have written. The journal has one study, whose id is
    0; there the id of a trial is its number.

    Args:
        log: The journal.
    """

    def __init__(self, log: StudyLog) -> None:
        self._log = log
        self._texts: dict[BaseDistribution, str] = {}

    def create(self, drawn: Mapping[str, Scalar], distributions: Mapping[str, BaseDistribution]) -> None:
        """Adds a running trial with its values: the next number is its own."""
        self._add(
            Operation.CREATE_TRIAL,
            study_id=0,
            datetime_start=_now(),
            state=TrialState.RUNNING,
            distributions={name: self._text(each) for name, each in distributions.items()},
            params={name: each.to_internal_repr(drawn[name]) for name, each in distributions.items()},
        )

    def end(self, trial: int, state: TrialState, value: float | None) -> None:
        """Ends a trial."""
        values = None if value is None else [value]
        self._add(
            Operation.SET_TRIAL_STATE_VALUES,
            trial_id=trial,
            state=state,
            values=values,
            datetime_complete=_now(),
        )

    def note(self, trial: int, name: str, value: object) -> None:
        """Sets a user attribute of a trial."""
        self._add(Operation.SET_TRIAL_USER_ATTR, trial_id=trial, user_attr={name: value})

    def _add(self, operation: Operation, **fields: Any) -> None:
        self._log.add({"op_code": operation, "worker_id": _WRITER, **fields})

    def _text(self, distribution: BaseDistribution) -> str:
        text = self._texts.get(distribution)
        if text is None:
            text = self._texts[distribution] = distribution_to_json(distribution)
        return text


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
