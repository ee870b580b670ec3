"""Endings whose rates are computed: stuck, one outcome, or one outcome with one detail."""

from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.labels import check_known, outcome_order
from attnsweep.orchestrator.ledger.sql import IS_JUDGED, literal
from attnsweep.orchestrator.ledger.views import outcomes_of
from attnsweep.search_spaces.measured import Rate, StuckRate
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import OUTCOMES

_STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Ending:
    """A selection of trainings whose rate is computed: all stuck trainings, or those with one outcome.

    Attributes:
        outcome: An outcome's label, or `stuck` for all outcomes that count as stuck.
        detail: An `outcome_detail`; `None` for any.
    """

    outcome: str = _STUCK
    detail: str | None = None

    @property
    def condition(self) -> str:
        """The SQL condition that selects the trainings with this ending in the view `trainings`."""
        outcome = _STUCK if self.outcome == _STUCK else f"outcome = {literal(self.outcome)}"
        return outcome if self.detail is None else f"{outcome} and outcome_detail = {literal(self.detail)}"

    @property
    def label(self) -> str:
        """The ending in words, with the detail in parentheses: `stuck`, `marginal`, `marginal (mean)`."""
        words = self.outcome.replace("_", " ")
        return words if self.detail is None else f"{words} ({self.detail.replace('_', ' ')})"

    @property
    def share_label(self) -> str:
        """The name of the rate: `stuck rate`, or `share of marginal (mean)`."""
        return "stuck rate" if self == STUCK else f"share of {self.label}"

    @property
    def verb(self) -> str:
        """The ending as a verb phrase: `end stuck`, `end as marginal (mean)`."""
        return f"end {self.label}" if self.outcome == _STUCK else f"end as {self.label}"

    @property
    def file_label(self) -> str:
        """The ending's label without spaces, for the names of figure files."""
        return self.label.replace(" ", "_")


STUCK = Ending()
SOLVED = Ending("solved")


@dataclass(frozen=True, slots=True)
class Question:
    """The rate that a report shows in its tables and figures.

    Attributes:
        ending: The ending whose rate it is.
        is_sought: Whether a higher rate is better.
    """

    ending: Ending = STUCK
    is_sought: bool = False


def read_question(connection: duckdb.DuckDBPyConnection, spec: Sweep, outcome: str | None) -> Question:
    """Chooses the rate that a report shows: of `outcome` if given, else of the first objective that is a rate, else the
    stuck rate.

    The rate of a given outcome is sought if it is `solved`, or the workload's own outcome and not counted as stuck.

    Raises:
        UserError: For an outcome that cannot occur.
    """
    if outcome is not None:
        known = outcomes_of(connection).get(outcome)
        is_good = outcome == "solved" or (outcome not in OUTCOMES and known is not None and not known.is_stuck)
        return Question(read_ending(connection, outcome), is_good)
    rate = next((objective for objective in spec.objectives if isinstance(objective, Rate | StuckRate)), None)
    if isinstance(rate, Rate):
        return Question(read_ending(connection, rate.outcome), rate.direction == "maximize")
    return Question()


def read_ending(connection: duckdb.DuckDBPyConnection, outcome: str = _STUCK, detail: str | None = None) -> Ending:
    """Makes the ending for an outcome and a detail, after checking that they occur in the ledger.

    Args:
        outcome: An outcome's label, or `stuck`.
        detail: An `outcome_detail` that occurs with this outcome; `None` for any.

    Raises:
        UserError: For an outcome that cannot occur, or a detail that does not.
    """
    if (outcome, detail) == (_STUCK, None):
        return STUCK
    seen = connection.execute(f"select distinct outcome, stuck, outcome_detail from trainings where {IS_JUDGED}")
    rows = seen.fetchall()
    judged = {label for label, outcome_type in outcomes_of(connection).items() if outcome_type.is_judged}
    known = sorted({*judged, *(row[0] for row in rows)}, key=outcome_order)
    none, advice = "no detail: this outcome has none in this sweep", "see docs/outcomes.md"
    check_known("outcome", outcome, [_STUCK, *known], none, advice)
    if detail is not None:
        inside = [row for row in rows if (row[1] if outcome == _STUCK else row[0] == outcome)]
        check_known("detail", detail, sorted({row[2] for row in inside if row[2]}), none, advice)
    return Ending(outcome, detail)
