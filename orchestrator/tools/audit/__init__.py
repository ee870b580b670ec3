"""`attnsweep audit`: checks that study, ledger and MLflow agree, and recomputes parameters, seeds and ids.

It writes nothing and takes no lock, so a running sweep can be audited.
"""
