"""The report in a sweep's directory and among the artifacts of its run: drawn after its summary, since it takes
seconds."""

import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
from attnsweep.orchestrator.tracking.runs import SweepRuns
from attnsweep.orchestrator.tracking.store import in_one_line, tracking_uri

if TYPE_CHECKING:
    from attnsweep.orchestrator.report.page import VectorReport
    from attnsweep.orchestrator.report.sweep_report import SweepReport

_log = logging.getLogger(__name__)


def add_report(directory: SweepDirectory, uri: str | None = None) -> None:
    """Adds the report to a sweep's run in MLflow, if the sweep is finished. Idempotent; the first call takes seconds.

    It never fails: the report is a convenience, and the ledger has everything.

    Args:
        directory: The sweep.
        uri: The URI of the MLflow store; for `None` see `tracking_uri`.
    """
    warn_of(problem_drawing(directory, tracking_uri(uri), keep=False), directory)


def problem_drawing(directory: SweepDirectory, uri: str | None, *, keep: bool) -> str | None:
    """Draws the report once for all places that get it; why one did not, in one line, or `None`.

    Args:
        directory: The sweep.
        uri: The URI of the MLflow store whose run of the sweep gets it, unless it has it already; `None` for none.
        keep: Whether the sweep's directory gets it.
    """
    drawing = _Drawing(directory)
    problems = []
    if keep and (problem := _problem(lambda: drawing.drawn.keep(directory.place))):
        problems.append(f"no report in {directory.place}: {problem}")
    if uri is not None and (problem := _problem(lambda: SweepRuns(directory, uri).add_report(drawing.write))):
        problems.append(f"no report in MLflow: {problem}")
    return "; ".join(problems) or None


def _problem(add: Callable[[], object]) -> str | None:
    try:
        add()
    except Exception as error:  # noqa: BLE001  # whatever the fits, the drawing, the disk or MLflow raise
        return in_one_line(error)
    return None


class _Drawing:
    """The report of a sweep, drawn when the first place asks for it."""

    def __init__(self, directory: SweepDirectory) -> None:
        self._place = directory.place

    @cached_property
    def report(self) -> "SweepReport":
        from attnsweep.orchestrator.report.sweep_report import read_sweep_report

        # Opened again: the directory may have been damaged since.
        return read_sweep_report(SweepDirectory.open(self._place))

    @cached_property
    def drawn(self) -> "VectorReport":
        from attnsweep.orchestrator.report.page import VectorReport

        return VectorReport.draw(self.report)

    def write(self, folder: Path) -> None:
        """Writes MLflow's artifacts to a folder."""
        (folder / "report").mkdir()
        self.drawn.write(folder / "report" / "report.html")
        _write_figures(self.report.results, self.report.directory.sweep, folder / "figures")


def _write_figures(found: SweepResults, title: str, folder: Path) -> None:
    """The figures that MLflow's page of the sweep's run shows without the report."""
    from attnsweep.orchestrator.analysis.rates.figures import stuck_rate_figure
    from attnsweep.orchestrator.analysis.roles.figure import emergence_figure
    from attnsweep.orchestrator.report.images import as_png

    folder.mkdir()
    if found.n_trainings and found.by_parameter:
        (folder / "stuck_rate.png").write_bytes(as_png(stuck_rate_figure(found.by_parameter, title=title)))
    if found.roles is not None:
        (folder / "roles.png").write_bytes(as_png(emergence_figure(found.roles, title=title)))


def warn_of(problem: str | None, directory: SweepDirectory) -> None:
    """Warns that a place has no report of a sweep, if there is a problem."""
    if problem is not None:
        place = plain(as_argument(directory.place.full_name))
        _log.warning(
            "%s; `attnsweep mlflow-sync %s` adds it to MLflow, `attnsweep report %s` writes it to a file",
            plain(problem),
            place,
            place,
        )
