"""`attnsweep audit`: asked = trained = stored = told = logged, and every number that can be recomputed is recomputed.

Nothing is written and no lock is taken, so a sweep may be audited while it runs.
"""

from orchestrator.audit.course import audit
from orchestrator.audit.verdict import Audit, Check, Problem

__all__ = ["Audit", "Check", "Problem", "audit"]
