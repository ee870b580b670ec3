"""`attnsweep audit`: asked = trained = stored = told = logged, and every number that can be recomputed is recomputed.

Nothing is written and no lock is taken, so a sweep may be audited while it runs.
"""
