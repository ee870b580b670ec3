"""MLflow: a projection of the ledger, for looking at. It can be lost and made again with `attnsweep mlflow-sync`.

An experiment per workload (a user's goes by the name of its class) with a saved view per name of a sweep, a parent run
per sweep, a child run per trial.
MLflow itself is imported on first use.
"""

from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.tracking.report import add_report
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.orchestrator.tracking.sync import SyncResult, sync

__all__ = ["Projection", "SyncResult", "add_report", "sync", "tracking_uri"]
