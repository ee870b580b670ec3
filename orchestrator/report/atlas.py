"""The atlas, a page about many sweeps and claims: one self-contained HTML file, written from their ledgers alone."""

import importlib.metadata
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
from markupsafe import Markup

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.by_parameter import stuck_rate
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooling
from attnsweep.orchestrator.analysis.verdict import Verdict, read_verdict, said
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.facts import OutcomeShare, outcome_shares
from attnsweep.orchestrator.report.templating import page_script, page_templates
from attnsweep.orchestrator.report.verdict_page import VERDICT_PAGE, badge_svg
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.output_file import refuse_special, writing_file
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.sweep_directory import REPORT_FILE, SweepDirectory, sweeps_below
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Varied
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class AtlasSweep:
    """What the atlas (a page about many sweeps) shows of one sweep.

    Attributes:
        directory: The sweep's directory.
        n_trials, n_trainings: The numbers of trials and trainings in the sweep's ledger.
        outcomes: The share of trainings with each outcome.
        stuck: The stuck rate.
        verdict: The verdict on the sweep's claim; `None` for a sweep without a claim or without a training.
    """

    directory: SweepDirectory
    n_trials: int
    n_trainings: int
    outcomes: tuple[OutcomeShare, ...]
    stuck: Rate
    verdict: Verdict | None

    @property
    def workload(self) -> str:
        """The name of the sweep's workload (the kind of model and task that it trains). A workload in a file of the
        user is named by file and class without folders, such as `mine.py:Mine`."""
        return self.directory.spec.workload.rpartition("/")[2]

    @property
    def space(self) -> dict[str, str]:
        """The values or the range of each parameter that the sweep varies."""
        spec = self.directory.spec
        return {name: _in_words(each) for name, each in {**spec.varied(), **spec.conditional()}.items()}

    def as_json(self) -> dict[str, Any]:
        """Returns the sweep as values that JSON can hold, for `attnsweep atlas --json`."""
        return {
            "sweep": self.directory.sweep,
            "place": str(self.directory.place),
            "workload": self.workload,
            "space": self.space,
            "trials": self.n_trials,
            "trainings": self.n_trainings,
            "stuck": self.stuck.as_json(),
            "outcomes": {each.outcome: each.rate.as_json() for each in self.outcomes},
            "claim": None if self.verdict is None else json.loads(self.verdict.to_json()),
        }


def _in_words(dimension: Varied | Conditional | Scalar) -> str:
    """Formats how a parameter varies: a range as `0.0001 to 3`, a choice as its values."""
    if isinstance(dimension, Conditional):
        return f"{_in_words(dimension.then)}, by {dimension.on}"
    if isinstance(dimension, Categorical):
        return ", ".join(map(value_label, dimension.choices))
    if isinstance(dimension, Float | Int):
        return f"{value_label(dimension.low)} to {value_label(dimension.high)}"
    return value_label(dimension)


def read_atlas(places: Sequence[PlaceName], pass_over: Callable[[OSError], object]) -> list[AtlasSweep]:
    """Reads what the atlas, a page about many sweeps, shows of the sweeps in the given directories and below them. The
    result is sorted by workload and name.

    Args:
        places: Sweep directories, or folders with sweep directories below them.
        pass_over: Is called for each folder that cannot be read.

    Raises:
        UserError: If one of `places` contains no sweep, or a sweep cannot be read.
    """
    found: dict[str, AtlasSweep] = {}
    for place in places:
        below = [each for each, _ in sweeps_below(place_of(place), pass_over)]
        if not below:
            raise UserError(
                "DIR",
                given=str(place),
                expected="a sweep directory, or a folder with sweep directories below it",
                fix="check the path",
            )
        found |= {str(each): _read(SweepDirectory.open(each)) for each in below if str(each) not in found}
    return sorted(found.values(), key=lambda each: (each.workload, each.directory.sweep))


def _read(directory: SweepDirectory) -> AtlasSweep:
    if not any(home.has_folder("trainings") for home in directory.homes):
        nothing = Rate(0, 0, None, None)
        return AtlasSweep(directory=directory, n_trials=0, n_trainings=0, outcomes=(), stuck=nothing, verdict=None)

    def read(connection: duckdb.DuckDBPyConnection) -> AtlasSweep:
        counts = connection.execute("select count(distinct trial), count(*) from trainings").fetchall()
        return AtlasSweep(
            directory=directory,
            n_trials=counts[0][0],
            n_trainings=counts[0][1],
            outcomes=outcome_shares(connection, pooling(directory.spec)),
            stuck=stuck_rate(connection, directory.spec),
            verdict=verdict,
        )

    verdict = None if directory.claim is None else read_verdict(directory, directory.claim)
    return Ledger(directory.place).ask(read)


def write_atlas(sweeps: Sequence[AtlasSweep], out: Path) -> None:
    """Writes the atlas (a page about many sweeps) as one HTML file, which is replaced only when the new one is
    complete.

    Raises:
        UserError: If the file cannot be written.
    """
    refuse_special(out)
    page = (
        page_templates()
        .get_template("atlas.html.j2")
        .render(
            sweeps=sweeps,
            claims=[each for each in sweeps if each.verdict is not None],
            workloads=sorted({each.workload for each in sweeps}),
            script=page_script("atlas.js"),
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            version=importlib.metadata.version("attnsweep"),
            report_of=lambda each: _link(each.directory.place, REPORT_FILE, out),
            page_of=lambda each: _link(each.directory.place, VERDICT_PAGE, out),
            badge=lambda verdict: Markup(badge_svg(verdict)),  # `badge_svg` has already escaped the texts in its SVG.
            said=said,
        )
    )
    with writing_file(out) as temporary:
        temporary.write_bytes(page.encode("utf-8", errors="replace"))


def _link(place: Place, name: str, out: Path) -> str | None:
    """Returns the link to a file in a sweep's directory, relative to the page `out`; `None` if there is no such file on
    this machine."""
    if not isinstance(place, LocalFolder) or not (place.path / name).is_file():
        return None
    return quote(os.path.relpath(place.path / name, out.resolve().parent))
