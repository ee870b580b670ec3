"""Copies a sweep's ledger to MLflow, W&B and TensorBoard, for browsing. A run copies to MLflow by itself; the others,
and copies that were lost, are written by `attnsweep mlflow-sync`, `wandb-sync` and `tensorboard-sync`.

MLflow has an experiment per workload (a user's workload is named by its class) with a saved view per sweep name, a
parent run per sweep, and a child run per trial. MLflow itself is imported on first use.
"""
