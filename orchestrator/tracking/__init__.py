"""MLflow: a projection of the ledger, for looking at. It can be lost and made again with `attnsweep mlflow-sync`.

An experiment per workload (a user's goes by the name of its class), a parent run per sweep, a child run per trial.
MLflow itself is imported on first use.
"""

from orchestrator.tracking.projection import Projection
from orchestrator.tracking.store import tracking_uri
from orchestrator.tracking.sync import SyncResult, sync

__all__ = ["Projection", "SyncResult", "sync", "tracking_uri"]
