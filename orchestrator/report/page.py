"""Writes the report's page: one HTML file that loads nothing, and its figures as separate files too."""

import importlib.metadata
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Template

from attnsweep.orchestrator.analysis.labels import plain_label, value_label
from attnsweep.orchestrator.analysis.role_results import step_label
from attnsweep.orchestrator.report.facts import QUANTILES
from attnsweep.orchestrator.report.pictures import Picture, Section, draw_overview, draw_sweep
from attnsweep.orchestrator.report.sweep_report import SweepReport, read_sweep_report
from attnsweep.orchestrator.report.templating import page_templates
from attnsweep.orchestrator.storage.errors import reading
from attnsweep.orchestrator.storage.local import LocalFolder, refuse_link
from attnsweep.orchestrator.storage.output_file import make_folder, refuse_special, writing_file
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE, SweepDirectory, are_parts
from attnsweep.search_spaces.measured import goal_of
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class Shown:
    """A report with its figures, as the template takes it."""

    report: SweepReport
    pictures: tuple[Picture, ...]

    def of(self, section: Section) -> list[Picture]:
        return [picture for picture in self.pictures if picture.section == section]

    @property
    def spec_json(self) -> str:
        """Indented."""
        return json.dumps(json.loads(self.report.directory.spec.to_json()), indent=2, ensure_ascii=False)


def write_report(
    directories: Sequence[PlaceName],
    out: Path | None,
    outcome: str | None = None,
) -> Path:
    """Writes the report on one or several sweeps as an HTML file.

    Args:
        out: The file; `None` means `report/report.html` in the directory of the one sweep.
        outcome: The outcome whose rate the report is about; by default that of each sweep's objective.
    """
    if out is None:
        place = place_of(directories[0])
        if len(directories) > 1:
            raise _no_out("a file name, because a report on several sweeps belongs into none of their directories")
        if not isinstance(place, LocalFolder):
            raise _no_out("a local file name, because a report cannot be written into the object store of its sweep")
        out = _own_file(place)
    refuse_special(out)
    page, pictures = make_report(directories, outcome)
    _write(out, page, pictures)
    for picture in pictures:
        _put(_figures_folder(out) / f"{picture.name}.png", picture.png)
    return out


def _no_out(expected: str) -> UserError:
    return UserError("--out", given=None, expected=expected, fix="add --out FILE.html")


@dataclass(frozen=True, slots=True)
class VectorReport:
    """With PNG files, drawing would take twice as long."""

    page: str
    pictures: Sequence[Picture]

    @classmethod
    def draw(cls, report: SweepReport) -> "VectorReport":
        """Writes no file."""
        return cls(*_drawn([report]))

    def write(self, out: Path) -> None:
        """The page and, in the folder beside it, the figures."""
        _write(out, self.page, self.pictures)
        for picture in self.pictures:
            (_figures_folder(out) / f"{picture.name}.png").unlink(missing_ok=True)

    def keep(self, place: Place) -> None:
        """Into the sweep's directory."""
        if isinstance(place, LocalFolder):
            self.write(_own_file(place))
        else:
            place.put_text(REPORT_FILE, self.page)


def make_report(
    directories: Sequence[PlaceName],
    outcome: str | None = None,
) -> tuple[str, list[Picture]]:
    """Writes no file. Arguments and errors are those of `write_report`."""
    sweeps = [SweepDirectory.open(name) for name in directories]
    if are_parts(sweeps):
        return _drawn([read_sweep_report(sweeps[0], outcome, sweeps)])
    return _drawn([read_sweep_report(sweep, outcome) for sweep in sweeps])


def _drawn(reports: Sequence[SweepReport]) -> tuple[str, list[Picture]]:
    several = len(reports) > 1
    shown = [
        Shown(
            report=report,
            pictures=draw_sweep(report, f"{at}_" if several else ""),
        )
        for at, report in enumerate(reports, 1)
    ]
    overview = draw_overview(reports) if several else None
    pictures = [picture for shown_sweep in shown for picture in shown_sweep.pictures] + ([overview] if overview else [])
    page = _template().render(
        shown=shown,
        overview=overview,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=importlib.metadata.version("attnsweep"),
    )
    return page, pictures


@cache
def _template() -> Template:
    """Only once, because it takes a tenth of a second."""
    environment = page_templates()
    environment.globals |= {
        "quantiles": ["median" if each == 0.5 else f"{100 * each:.0f}%" for each in QUANTILES],
    }
    environment.filters |= {
        "value": value_label,
        "told": lambda values: [(name, value_label(value)) for name, value in values.items()],
        "parameter": plain_label,
        "goal": goal_of,
        "emerges": step_label,
        "seconds": _duration,
    }
    return environment.get_template("report.html.j2")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _own_file(place: LocalFolder) -> Path:
    out = place.path / REPORT_FILE
    with reading(str(place)):
        refuse_link(out.parent)
        refuse_link(_figures_folder(out))
        folder = next(parent for parent in out.parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise _no_out(f"a file outside the sweep, because the folder {folder} is not writable")
    return out


def _figures_folder(out: Path) -> Path:
    return out.parent / f"{out.stem}_figures"


def _write(out: Path, page: str, pictures: Iterable[Picture]) -> None:
    folder = _figures_folder(out)
    is_new = not folder.exists()
    make_folder(folder, "--out")
    try:
        for picture in pictures:
            _put(folder / f"{picture.name}.svg", picture.svg.encode())
        # Characters that UTF-8 cannot represent are replaced. They may come from a path, because paths need not be
        # UTF-8.
        _put(out, page.encode("utf-8", errors="replace"))
    except UserError:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _put(path: Path, content: bytes) -> None:
    with writing_file(path) as temporary:
        temporary.write_bytes(content)
