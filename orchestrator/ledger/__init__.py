"""The ledger: the Parquet tables of a sweep, the truth that everything else is a projection of."""

from orchestrator.ledger.compaction import Recovery, compact
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.schema import (
    SCHEMA_VERSION,
    curves_schema,
    heads_schema,
    trainings_schema,
)
from orchestrator.ledger.writer import LedgerWriter

__all__ = [
    "SCHEMA_VERSION",
    "Ledger",
    "LedgerWriter",
    "Recovery",
    "compact",
    "curves_schema",
    "heads_schema",
    "trainings_schema",
]
