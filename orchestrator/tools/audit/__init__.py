"""`attnsweep audit`: checks that study, ledger and MLflow agree, and recomputes their numbers.

The audit writes nothing and takes no lock, so a running sweep can be audited.
"""
