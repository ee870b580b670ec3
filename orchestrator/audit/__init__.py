"""`attnsweep audit`: checks that the study, the ledger and MLflow have the same trials, and recomputes their numbers.

The audit writes nothing and takes no lock, so a running sweep can be audited.
"""
