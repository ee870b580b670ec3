"""MLflow: a projection of the ledger, for browsing. If lost, `attnsweep mlflow-sync` makes it again.

It has an experiment per workload (a user's workload is named by its class) with a saved view per sweep name, a parent
run per sweep, and a child run per trial.
MLflow itself is imported on first use.
"""

from attnsweep.orchestrator.tracking.projection import Projection, have_report_drawn
from attnsweep.orchestrator.tracking.report import add_report
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.orchestrator.tracking.sync import SyncResult, sync

__all__ = ["Projection", "SyncResult", "add_report", "have_report_drawn", "sync", "tracking_uri"]
