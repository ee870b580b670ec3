"""Copies a sweep's ledger to MLflow, for browsing. A run copies by itself; `attnsweep mlflow-sync` writes what was
lost.

MLflow has an experiment per workload (a user's workload is named by its class), a parent run per sweep, and a child
run per trial. MLflow itself is imported on first use.
"""
