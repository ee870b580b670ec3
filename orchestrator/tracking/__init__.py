"""MLflow: a projection of the ledger, for browsing. If lost, `attnsweep mlflow-sync` makes it again.

It has an experiment per workload (a user's workload is named by its class) with a saved view per sweep name, a parent
run per sweep, and a child run per trial. MLflow itself is imported on first use.
"""
