"""`attnsweep audit`: checks that asked = trained = stored = told = logged, and recomputes every number that it can.

The audit writes nothing and takes no lock, so a running sweep can be audited.
"""
