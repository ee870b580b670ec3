"""All that a report says of one sweep, read from its ledger."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import duckdb

from orchestrator.analysis.findings import Findings, read_findings
from orchestrator.analysis.intervals import Rate
from orchestrator.analysis.labels import STUCK
from orchestrator.analysis.phase_diagram import PhaseDiagram, read_phase_diagram
from orchestrator.analysis.rates import pooling
from orchestrator.ledger.reader import Ledger
from orchestrator.places.location import as_argument
from orchestrator.report import facts
from orchestrator.report.head_figures import RoleShare, role_composition
from orchestrator.report.learning_curves import LearningCurve, read_learning_curves
from orchestrator.report.regions import Regions, read_regions
from orchestrator.sweep_directory import SweepDirectory
from search_spaces.replication import most_wanted
from search_spaces.sweep import Sweep
from workloads.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """One sweep.

    Attributes:
        directory: Where it is.
        findings: Rates, the best trial, roles.
        regions: What was observed along the parameters that matter most; `None` where none varies by itself.
        diagram: The phase diagram over the same two; `None` where there are not two whose values are numbers.
        outcomes: What trainings ended as.
        curves: Learning curves by outcome.
        levels: Reference levels.
        costs: Core-seconds by pack size.
        course: When, where and how much.
        failures: Errors.
        composition: Roles of heads by layer; empty where there are none that could have one.
    """

    directory: SweepDirectory
    findings: Findings
    regions: Regions | None
    diagram: PhaseDiagram | None
    outcomes: tuple[facts.OutcomeShare, ...]
    curves: tuple[LearningCurve, ...]
    levels: tuple[facts.ReferenceLevel, ...]
    costs: tuple[facts.PackCost, ...]
    course: facts.Course
    failures: tuple[facts.Failure, ...]
    composition: tuple[RoleShare, ...]

    @property
    def solved(self) -> Rate:
        """The solved rate over all trials."""
        return self.findings.solved

    @property
    def planned(self) -> str:
        """Trainings that the spec asks for."""
        spec = self.directory.spec
        most = f"{spec.trials * most_wanted(spec.replicates):,}"
        return most if isinstance(spec.replicates, int) else f"at most {most}"

    @property
    def trainings_per_second(self) -> float | None:
        """Of wall time, start-up included; `None` where no run has ended in order yet."""
        seconds = self.directory.seconds_spent
        return self.course.n_trainings / seconds if seconds else None

    @property
    def n_failed(self) -> int:
        """Trainings that raised an error."""
        return self.findings.outcomes.get("failed", 0)

    @property
    def is_local(self) -> bool:
        """Whether the sweep is in a directory, not in an object store."""
        return isinstance(self.directory.path, Path)

    @property
    def place(self) -> str:
        """The sweep as a command names it, in the folder that holds its directory; a report is read elsewhere."""
        location = self.directory.path
        return as_argument(Path(location.resolve().name) if isinstance(location, Path) else location)

    def commands(self) -> list[tuple[str, str]]:
        """(what for, command) for a shell."""
        place = self.place
        told = [] if self.directory.finished else [("Go on where it stopped", f"attnsweep resume {place}")]
        told.append(("How far it is, also while it runs", f"attnsweep status {place}"))
        stuck = ", ".join(f"'{outcome}'" for outcome in STUCK)
        queries = [
            ("Outcomes", "select outcome, outcome_detail, count(*) from trainings group by all order by 3 desc"),
            ("The stuck trainings", f"from trainings where outcome in ({stuck}) order by trial, replicate"),
        ]
        if self.outcomes:
            curve = "select step, metric, value from curves where training_id = '{}' order by metric, step"
            queries.append(("The curves of one training", curve.format(self.example.replace("'", "''"))))
        if self.n_failed:
            errors = "select trial, replicate, error from trainings where outcome = 'failed'"
            queries.append(("The errors", errors))
        told += [(purpose, f"attnsweep query {place} {shlex.quote(sql)}") for purpose, sql in queries]
        told.append(("All rows, for your own analysis", f"attnsweep query {place} 'from trials' --format csv"))
        return told

    @property
    def example(self) -> str:
        """The id of some training, stuck where one is."""
        stuck = [each for each in self.outcomes if each.outcome in STUCK]
        return (stuck or list(self.outcomes))[0].example

    def replay(self) -> str:
        """The command that trains one training again, alone."""
        return f"attnsweep replay {self.place} {shlex.quote(self.example)}"


def read_sweep_report(directory: SweepDirectory) -> SweepReport:
    """Reads a sweep as it is now; it may still be running.

    Raises:
        UserError: For a ledger that cannot be read.
    """
    with Ledger(directory.path).reading() as connection:
        findings, pool = read_findings(connection, directory.spec), pooling(directory.spec)
        regions = read_regions(connection, findings.by_parameter, pool)
        return SweepReport(
            directory=directory,
            findings=findings,
            regions=regions,
            diagram=_diagram(connection, directory.spec, regions),
            outcomes=facts.outcome_shares(connection, pool),
            curves=read_learning_curves(connection),
            levels=facts.reference_levels(connection),
            costs=facts.pack_costs(connection),
            course=facts.course(connection),
            failures=facts.failures(connection),
            composition=() if findings.roles is None else role_composition(connection, pool),
        )


def _diagram(connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None) -> PhaseDiagram | None:
    if regions is None or len(regions.axes) < 2:
        return None
    try:
        return read_phase_diagram(connection, [spec], *(axis.parameter for axis in regions.axes))
    except UserError:
        # A parameter whose values are not numbers: the cells are all there is to see.
        return None
