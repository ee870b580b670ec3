"""MLflow, as a projection of the ledger: an experiment per workload, a parent run per sweep, a child run per trial if
a sweep has at most 500.

A run starts `attnsweep mlflow-sync DIR --follow` (`following`), a process that copies the ledger (`sync`). MLflow is
imported on first use.
"""
