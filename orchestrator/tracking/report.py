"""The report and figures as artifacts of a sweep's run: drawn after its summary, since they take seconds."""

import logging
from pathlib import Path

from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
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
    warn_of(problem_adding_report(directory, tracking_uri(uri)), directory)


def problem_adding_report(directory: SweepDirectory, uri: str) -> str | None:
    """Adds the report; why it could not, in one line, or `None`."""

    def write(folder: Path) -> None:
        from attnsweep.orchestrator.report.page import write_vector_report
        from attnsweep.orchestrator.report.sweep_report import read_sweep_report

        # Opened again: the directory may have been damaged since.
        report = read_sweep_report(SweepDirectory.open(directory.place))
        (folder / "report").mkdir()
        write_vector_report(report, folder / "report" / "report.html")
        _write_figures(report.results, directory.sweep, folder / "figures")

    try:
        SweepRuns(directory, uri).add_report(write)
    except Exception as error:  # noqa: BLE001  # whatever the fits, the drawing, the disk or MLflow raise
        return in_one_line(error)
    return None


def _write_figures(found: SweepResults, title: str, folder: Path) -> None:
    """The figures that MLflow's page of the sweep's run shows without the report."""
    from attnsweep.orchestrator.analysis.rates.figure import stuck_rate_figure
    from attnsweep.orchestrator.analysis.roles.figure import emergence_figure
    from attnsweep.orchestrator.report.images import as_png

    folder.mkdir()
    if found.n_trainings and found.by_parameter:
        (folder / "stuck_rate.png").write_bytes(as_png(stuck_rate_figure(found.by_parameter, title=title)))
    if found.roles is not None:
        (folder / "roles.png").write_bytes(as_png(emergence_figure(found.roles, title=title)))


def warn_of(problem: str | None, directory: SweepDirectory) -> None:
    """Warns that MLflow has no report of a sweep, if there is a problem."""
    if problem is not None:
        place = plain(directory.place.full_name)
        _log.warning(
            "no report in MLflow: %s; `attnsweep mlflow-sync %s` adds it, `attnsweep report %s` writes it to a file",
            plain(problem),
            place,
            place,
        )
