"""The report as artifacts of a sweep's run."""

import logging
from pathlib import Path

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.runs import SweepRuns
from attnsweep.orchestrator.tracking.store import in_one_line, tracking_uri

_log = logging.getLogger(__name__)


def add_report(directory: SweepDirectory, uri: str | None = None) -> None:
    """Adds the report to a sweep's run in MLflow, if the sweep is finished. Idempotent; the first call takes seconds.

    It never fails: the report is a convenience, and the ledger has everything.

    Args:
        directory: The sweep.
        uri: The URI of the MLflow store; for `None` see `tracking_uri`.
    """

    def write(out: Path) -> None:
        from attnsweep.orchestrator.report.page import write_report

        write_report([directory.place], out)

    try:
        SweepRuns(directory, tracking_uri(uri)).add_report(write)
    except Exception as error:  # noqa: BLE001  # whatever the fits, the drawing, the disk or MLflow raise
        _log.warning(
            "no report in MLflow: %s; `attnsweep mlflow-sync %s` adds it, `attnsweep report %s` writes it to a file",
            in_one_line(error),
            directory.place.full_name,
            directory.place.full_name,
        )
