"""A few stuck trainings that stand for the others, so that a page can say why they are stuck."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import duckdb

from attnsweep.workloads.vocabulary import STUCK_OUTCOMES

_MOST = 3
RULE = (
    f"Of each kind of stuck trainings (outcome and detail), the {_MOST} most frequent first, one training: that whose "
    "id has the lowest hash."
)
_STUCK = """
select outcome, coalesce(outcome_detail, ''), training_id, trial, replicate
from trainings where outcome in (select unnest(?)) order by outcome, outcome_detail
"""


@dataclass(frozen=True, slots=True)
class StuckRow:
    """One training, and how many are stuck as it is."""

    name: str
    outcome: str
    detail: str
    n: int


def stuck_rows(connection: duckdb.DuckDBPyConnection) -> tuple[StuckRow, ...]:
    """The trainings that the rule chooses. The choice does not change while the ledger does not.

    Args:
        connection: From `Ledger.connect`.
    """
    rows = connection.execute(_STUCK, [list(STUCK_OUTCOMES)]).fetchall()
    kinds = [list(of) for _, of in groupby(rows, key=lambda row: row[:2])]
    return tuple(_first(of) for of in sorted(kinds, key=len, reverse=True)[:_MOST])


def _first(of_kind: Sequence[tuple[str, str, str, int, int]]) -> StuckRow:
    outcome, detail, _, trial, replicate = min(of_kind, key=lambda row: hashlib.blake2b(row[2].encode()).digest())
    return StuckRow(f"{trial}/{replicate}", outcome, detail, len(of_kind))
