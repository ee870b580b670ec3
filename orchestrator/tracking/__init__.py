"""MLflow, W&B and TensorBoard as copies of the ledger ("projections"), for browsing. Lost copies are written again by
`attnsweep mlflow-sync`, `wandb-sync` and `tensorboard-sync`. A run logs to MLflow by itself, but not to the other two.

MLflow has an experiment per workload (a user's workload is named by its class) with a saved view per sweep name, a
parent run per sweep, and a child run per trial. MLflow itself is imported on first use.
"""
