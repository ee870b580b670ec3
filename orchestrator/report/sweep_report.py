"""Reads the content of a report on one sweep from its ledger."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnsweep.orchestrator.analysis.interventions import InterventionRatio, read_interventions
from attnsweep.orchestrator.analysis.learning_curves import MOST_TRAININGS, LearningCurve, read_learning_curves
from attnsweep.orchestrator.analysis.onset import OnsetCurve
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.analysis.rates.bins import equal_bins, fine_bins
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    MOST_PARAMETERS,
    ParameterRates,
    Question,
    counts_by_trial,
    rates_by,
    read_question,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooling
from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.analysis.role_emergence import ending_note, role_histories
from attnsweep.orchestrator.ledger.views import outcomes_of
from attnsweep.orchestrator.report import facts
from attnsweep.orchestrator.report.measured import (
    MetricCurves,
    RoleShare,
    read_events,
    read_metric_curves,
    role_composition,
)
from attnsweep.orchestrator.report.regions import Regions, read_diagram, read_regions
from attnsweep.orchestrator.report.trials import read_trials
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import measured
from attnsweep.search_spaces.replication import most_wanted
from attnsweep.workloads.interventions import INTERVENTION


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Everything that the report on one sweep shows.

    Attributes:
        parts: All its directories, if several drivers trained its shards; else the same one.
        leads_with_rate: Whether the rate `asked` is what the sweep, or the reader, asked for first.
        drawn: Those of `by_parameter` with a figure: the eight that account for most of the spread between trials.
    """

    directory: SweepDirectory
    parts: tuple[SweepDirectory, ...]
    results: SweepResults
    question: Question
    leads_with_rate: bool
    asked: Rate
    by_parameter: tuple[ParameterRates, ...]
    drawn: tuple[ParameterRates, ...]
    regions: Regions | None
    diagram: PhaseDiagram | None
    outcomes: tuple[facts.OutcomeShare, ...]
    stuck_outcomes: tuple[str, ...]
    measures: list[facts.Row]
    certificates: tuple[facts.CertificateShare, ...]
    curves: tuple[LearningCurve, ...]
    metric_curves: tuple[MetricCurves, ...]
    events: tuple[OnsetCurve, ...]
    delays: tuple[OnsetCurve, ...]
    levels: tuple[facts.ReferenceLevel, ...]
    costs: list[facts.Row]
    totals: facts.Totals
    failures: list[facts.Row]
    composition: tuple[RoleShare, ...]
    ending_note: str
    trials: dict[str, Any] | None
    interventions: tuple[InterventionRatio, ...]

    @property
    def of_many(self) -> str:
        """How many trainings are chosen at random for the quartiles of curves; empty if all are used."""
        if max(self.results.outcomes.values(), default=0) <= MOST_TRAININGS:
            return ""
        return f"; of an outcome with more than {MOST_TRAININGS:,} trainings, {MOST_TRAININGS:,} are drawn at random"

    @property
    def fault(self) -> str | None:
        """What the self-check found wrong; `None` if nothing."""
        faults = (replays.fault for part in self.parts if (replays := part.progress.replays) is not None)
        return next(filter(None, faults), None)

    @property
    def finished(self) -> bool:
        return all(part.finished for part in self.parts)

    @property
    def seconds_spent(self) -> float:
        """The wall-clock seconds of all runs together; shards run at the same time."""
        return max(part.seconds_spent for part in self.parts)

    @property
    def planned(self) -> str:
        """As text, such as `1,000`."""
        spec = self.directory.spec
        most = f"{sum(part.own_spec.trials for part in self.parts) * most_wanted(spec.replicates):,}"
        return most if isinstance(spec.replicates, int) else f"at most {most}"

    @property
    def trainings_per_second(self) -> float | None:
        """The trainings per second of wall-clock time, including start-up; `None` until a run has ended normally."""
        seconds = self.seconds_spent
        return self.totals.n_trainings / seconds if seconds else None

    @property
    def n_failed(self) -> int:
        return self.results.outcomes.get("failed", 0)

    @property
    def is_local(self) -> bool:
        return isinstance(self.directory.place, LocalFolder)

    def commands(self) -> list[tuple[str, str]]:
        """(purpose, command)."""
        places = [_argument(part) for part in self.parts]
        together = " ".join(places)
        commands = [
            ("Continue the sweep", f"attnsweep resume {place}")
            for part, place in zip(self.parts, places, strict=True)
            if not part.finished
        ]
        commands += [("Show the sweep's progress, also while it runs", f"attnsweep status {place}") for place in places]
        queries = [
            ("Outcomes", "select outcome, outcome_detail, count(*) from trainings group by all order by 3 desc"),
            ("The stuck trainings", "from trainings where stuck order by trial, replicate"),
        ]
        # One training, which the commands below name: a stuck one if there is any.
        examples = sorted(self.outcomes, key=lambda share: not share.kind.is_stuck)[:1]
        for share in examples:
            curve = "select step, metric, value from curves where training_id = '{}' order by metric, step"
            queries.append(("The curves of one training", curve.format(share.example.replace("'", "''"))))
        if self.n_failed:
            errors = "select trial, replicate, error from trainings where outcome = 'failed'"
            queries.append(("The errors", errors))
        commands += [(purpose, f"attnsweep query {together} {shlex.quote(sql)}") for purpose, sql in queries]
        commands.append(("All rows, for your own analysis", f"attnsweep query {together} 'from trials' --format csv"))
        for share in examples if len(places) == 1 else []:
            name = shlex.quote(share.example)
            if share.kind.is_stuck:
                commands.append(("Why a training is stuck", f"attnsweep why {together} {name}"))
            replay = "Replay one training alone and compare it with the ledger; the command takes a training_id"
            commands.append((replay, f"attnsweep replay {together} {name}"))
        return commands


def _argument(directory: SweepDirectory) -> str:
    """Without parent folders, because reports are read on other machines."""
    place = directory.place
    return as_argument(place.path.resolve().name if isinstance(place, LocalFolder) else place)


def read_sweep_report(
    directory: SweepDirectory,
    outcome: str | None = None,
    parts: Sequence[SweepDirectory] = (),
    bins: int | None = None,
) -> SweepReport:
    """Reads a sweep as it is now, also while it runs.

    Args:
        outcome: The outcome whose rate the report is about; by default that of the sweep's objective.
        parts: All shards of the sweep; by default the directory is the whole sweep.
        bins: Equal parts of each range; default by the number of trials.
    """
    spec = directory.spec
    parts = tuple(parts) or (directory,)
    with SweepData.open(*(part.place for part in parts)).reading() as connection:
        results, pool = read_results(connection, spec), pooling(spec)
        question = read_question(connection, spec, outcome)
        by_parameter = rates_by(connection, spec, question.ending, equal_bins(bins, fine_bins))
        regions = read_regions(connection, by_parameter, pool, question, bins)
        has_roles = results.roles is not None
        events, delays = read_events(connection, spec)
        ranked = [explained.rates for explained in regions.explained] if regions else []
        matter = [*ranked, *(rates for rates in by_parameter if rates.where)][:MOST_PARAMETERS]
        is_intervened = INTERVENTION in spec.parameters()
        return SweepReport(
            directory=directory,
            parts=parts,
            results=results,
            question=question,
            leads_with_rate=outcome is not None or isinstance(spec.objectives[0], measured.Rate | measured.StuckRate),
            asked=pool([(n, k) for _, n, k in counts_by_trial(connection, (), question.ending)]),
            by_parameter=by_parameter,
            drawn=tuple(rates for rates in by_parameter if rates in matter),
            regions=regions,
            diagram=read_diagram(connection, spec, regions),
            outcomes=facts.outcome_shares(connection, pool),
            stuck_outcomes=tuple(label for label, kind in outcomes_of(connection).items() if kind.is_stuck),
            measures=facts.measures(connection),
            certificates=facts.certificate_shares(connection, pool),
            curves=read_learning_curves(connection),
            metric_curves=read_metric_curves(connection),
            events=events,
            delays=delays,
            levels=facts.reference_levels(connection),
            costs=facts.pack_costs(connection),
            totals=facts.totals(connection),
            failures=facts.failures(connection),
            composition=role_composition(connection, pool) if has_roles else (),
            ending_note=ending_note(role_histories(connection)) if has_roles else "",
            trials=read_trials(connection, spec),
            interventions=read_interventions(connection, spec.workload).ratios if is_intervened else (),
        )
