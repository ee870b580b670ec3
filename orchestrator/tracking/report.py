"""Draws a sweep's report, for its directory and its MLflow run, after the summary, because drawing takes seconds."""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.terminal import plain
from attnsweep.orchestrator.tracking.runs import SweepRuns
from attnsweep.orchestrator.tracking.store import in_one_line, tracking_uri

if TYPE_CHECKING:
    from attnsweep.orchestrator.report.page import Page

_log = logging.getLogger(__name__)


def add_report(directory: SweepDirectory, uri: str | None = None) -> None:
    """Adds the report to the sweep's run in MLflow, if the sweep is finished."""
    warn_of(problem_drawing(directory, tracking_uri(uri), keep=False), directory)


def problem_drawing(directory: SweepDirectory, uri: str | None, *, keep: bool) -> str | None:
    """Draws it once: for the directory if `keep`, and for the MLflow run at `uri`, unless that has it already."""

    @cache
    def drawn() -> "Page":
        from attnsweep.orchestrator.report.page import draw_page
        from attnsweep.orchestrator.report.sweep_report import read_sweep_report

        # The directory is opened again because it may have been damaged since the sweep ended.
        return draw_page([read_sweep_report(SweepDirectory.open(directory.place))])

    def write(folder: Path) -> None:
        (folder / "report").mkdir()
        drawn().write(folder / "report" / "report.html")

    problems = []
    if keep and (problem := _problem(lambda: drawn().keep(directory.place))):
        problems.append(f"no report in {directory.place}: {problem}")
    if uri is not None and (problem := _problem(lambda: SweepRuns(directory, uri).add_report(write))):
        problems.append(f"no report in MLflow: {problem}")
    return "; ".join(problems) or None


def _problem(add: Callable[[], object]) -> str | None:
    try:
        add()
    except Exception as error:  # noqa: BLE001  # the fits, the drawing, the disk and MLflow raise many kinds of errors
        return in_one_line(error)
    return None


def warn_of(problem: str | None, directory: SweepDirectory) -> None:
    if problem is not None:
        place = plain(as_argument(directory.place.full_name))
        _log.warning(
            "%s; `attnsweep mlflow-sync %s` adds it to MLflow, `attnsweep report %s` writes it to a file",
            plain(problem),
            place,
            place,
        )
