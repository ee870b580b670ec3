"""Writes the report's page: one HTML file that loads nothing, and its figures as separate files too."""

import base64
import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Template
from markupsafe import Markup

from attnsweep.orchestrator.analysis.interventions import ratio_label
from attnsweep.orchestrator.analysis.labels import parameter_label, value_label
from attnsweep.orchestrator.analysis.rates.outcomes import pruned_note
from attnsweep.orchestrator.analysis.results import stuck_or_slow_sentence
from attnsweep.orchestrator.analysis.role_emergence import step_label
from attnsweep.orchestrator.report.charts import STYLE, as_file
from attnsweep.orchestrator.report.figures import Picture, Section, draw_sweep
from attnsweep.orchestrator.report.sweep_report import SweepReport, read_sweep_report
from attnsweep.orchestrator.report.templating import page_templates
from attnsweep.orchestrator.report.trials import as_script
from attnsweep.orchestrator.storage.files import refuse_link, upload
from attnsweep.orchestrator.storage.output_file import make_folder, writing_file
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
    def trials_json(self) -> Markup:
        assert self.report.trials is not None
        return Markup(as_script(self.report.trials))

    @property
    def spec_json(self) -> str:
        return json.dumps(json.loads(self.report.directory.spec.to_json()), indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    pictures: Sequence[Picture]

    def write(self, out: Path) -> None:
        """With the figures in a folder beside it."""
        folder = _figures_folder(out)
        is_new = not folder.exists()
        make_folder(folder, "--out")
        try:
            for picture in self.pictures:
                _put(folder / f"{picture.name}.svg", as_file(picture.svg).encode())
            # A path may have characters that UTF-8 cannot represent.
            _put(out, self.text.encode("utf-8", errors="replace"))
        except (OSError, UserError):
            if is_new:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def keep(self, place: Path) -> None:
        """Into the sweep's directory."""
        self.write(_own_file(place))
        upload(_own_file(place))


def write_report(
    directories: Sequence[PlaceName], out: Path | None, outcome: str | None = None, bins: int | None = None
) -> Path:
    """Writes the report on one or several sweeps as an HTML file.

    Args:
        out: `None` for `report/report.html` in the directory of the one sweep.
        outcome: Whose rate the report is about; by default that of each sweep's objective, else the stuck rate.
        bins: Equal parts of each range; by default the more, the more trials.
    """
    if out is None:
        if len(directories) > 1:
            raise _no_out("a file name, because a report on several sweeps belongs in none of their directories")
        out = _own_file(place_of(directories[0]))
    make_report(directories, outcome, bins).write(out)
    return out


def _no_out(expected: str) -> UserError:
    return UserError("--out", given=None, expected=expected, fix="add --out FILE.html")


def make_report(directories: Sequence[PlaceName], outcome: str | None = None, bins: int | None = None) -> Page:
    """As `write_report`, but writes no file."""
    sweeps = [SweepDirectory.open(name) for name in directories]
    if are_parts(sweeps):
        return draw_page([read_sweep_report(sweeps[0], outcome, sweeps, bins)])
    return draw_page([read_sweep_report(sweep, outcome, bins=bins) for sweep in sweeps])


def draw_page(reports: Sequence[SweepReport]) -> Page:
    several = len(reports) > 1
    numbered = enumerate(reports, 1)
    shown = [Shown(report, draw_sweep(report, f"{number}_" if several else "")) for number, report in numbered]
    script = (resources.files(__package__) / "templates" / "explore.js").read_text()
    text = _template().render(
        shown=shown,
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=importlib.metadata.version("attnsweep"),
    )
    return Page(text, [picture for each in shown for picture in each.pictures])


@cache
def _template() -> Template:
    """Only once, because it takes a tenth of a second."""
    environment = page_templates()
    environment.globals |= {
        "chart_style": Markup(STYLE),
    }
    environment.filters |= {
        "value": value_label,
        "told": lambda values: [(name, value_label(value)) for name, value in values.items()],
        "parameter": parameter_label,
        "ratio": ratio_label,
        "pruned": pruned_note,
        "stuck_or_slow": stuck_or_slow_sentence,
        "svg": Markup,
        "goal": goal_of,
        "emerges": step_label,
        "seconds": _duration,
    }
    return environment.get_template("report.html.j2")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _own_file(place: Path) -> Path:
    out = place / REPORT_FILE
    refuse_link(out.parent)
    refuse_link(_figures_folder(out))
    folder = next(parent for parent in out.parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise _no_out(f"a file outside the sweep, because the folder {folder} is not writable")
    return out


def _figures_folder(out: Path) -> Path:
    return out.parent / f"{out.stem}_figures"


def _put(path: Path, content: bytes) -> None:
    with writing_file(path) as temporary:
        temporary.write_bytes(content)
