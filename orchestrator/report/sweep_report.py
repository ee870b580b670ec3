"""Reads the content of a report on one sweep from its ledger."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnsweep.orchestrator.analysis.interventions import interventions
from attnsweep.orchestrator.analysis.learning_curves import MAX_TRAININGS, learning_curves
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.analysis.rates.bins import equal_bins, fine_bins
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    MAX_PARAMETERS,
    Question,
    by_title,
    rate_of,
    rates_by,
    read_question,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooling, trials_count_once
from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.analysis.role_emergence import role_rates
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.ledger.views import outcomes_of
from attnsweep.orchestrator.report import facts
from attnsweep.orchestrator.report.regions import Regions, read_diagram, read_regions
from attnsweep.orchestrator.report.trials import read_trials
from attnsweep.orchestrator.storage.copies import is_copy
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import measured
from attnsweep.search_spaces.replication import max_replicates
from attnsweep.workloads.interventions import INTERVENTION


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Everything that the report on one sweep shows.

    Attributes:
        parts: The directories of all its shards, or its one directory.
        asked: The rate that the report is about.
        rates: The bins of each parameter, by its title; `drawn` has the up to eight that account for most of the spread
            between trials.
        tables: The rows of the other sections: `outcomes`, `curves`, `levels`, `metrics`, `events`,
            `roles`, `interventions`, `certificates`, `costs` and `failures`.
        notes: `asked`, the outcome that the reader named or empty; `stuck`, the outcomes that count as stuck.
    """

    directory: SweepDirectory
    parts: tuple[SweepDirectory, ...]
    results: SweepResults
    question: Question
    asked: Rate
    rates: Mapping[str, list[Row]]
    drawn: tuple[str, ...]
    regions: Regions | None
    diagram: PhaseDiagram | None
    tables: Mapping[str, list[Row]]
    trials: dict[str, Any] | None
    totals: Row
    notes: Mapping[str, str]

    @property
    def leads_with_rate(self) -> bool:
        """Whether the rate is what the sweep, or the reader, asked for first."""
        return self.notes["asked"] != "" or isinstance(
            self.directory.spec.objectives[0], measured.Rate | measured.StuckRate
        )

    @property
    def of_many(self) -> str:
        """A clause on how many trainings are drawn for the quartiles of curves; empty if all are used."""
        if max(self.results.outcomes.values(), default=0) <= MAX_TRAININGS:
            return ""
        return f"; of an outcome with more than {MAX_TRAININGS:,} trainings, {MAX_TRAININGS:,} are drawn at random"

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
        """Wall time of all runs; shards run at the same time."""
        return max(part.progress.seconds for part in self.parts)

    @property
    def planned(self) -> str:
        """The number of trainings, such as `1,000` or `at most 1,000`."""
        spec = self.directory.spec
        number = f"{sum(part.own_spec.trials for part in self.parts) * max_replicates(spec.replicates):,}"
        return number if isinstance(spec.replicates, int) else f"at most {number}"

    @property
    def is_local(self) -> bool:
        return not is_copy(self.directory.place)

    def commands(self) -> list[tuple[str, str]]:
        """(purpose, command)."""
        places = [_argument(part) for part in self.parts]
        arguments, is_one = " ".join(places), len(places) == 1
        commands = [
            ("Continue the sweep", f"attnsweep resume {place}")
            for part, place in zip(self.parts, places, strict=True)
            if not part.finished
        ]
        # One training, which the last commands name: a stuck one if there is any.
        [example, *_] = [*sorted(self.tables["outcomes"], key=lambda row: not row["kind"].is_stuck), None]
        queries = {"The stuck trainings": "from trainings where stuck order by trial, replicate"}
        if example:
            name = example["example"].replace("'", "''")
            curve = f"select step, metric, value from curves where training_id = '{name}' order by metric, step"
            queries["The curves of one training"] = curve
        if self.results.outcomes.get("failed"):
            queries["The errors"] = "select trial, replicate, error from trainings where outcome = 'failed'"
        commands += [(purpose, f"attnsweep query {arguments} {shlex.quote(sql)}") for purpose, sql in queries.items()]
        if example and is_one:
            name = f"{arguments} {shlex.quote(example['example'])}"
            why = [("Why a training is stuck", f"attnsweep why {name}")] if example["kind"].is_stuck else []
            commands += [*why, ("Replay one training alone", f"attnsweep replay {name}")]
        return commands


def _argument(directory: SweepDirectory) -> str:
    """Without parent folders, because reports are read elsewhere."""
    place = directory.place
    return as_argument(place if is_copy(place) else place.resolve().name)


def read_sweep_report(
    directory: SweepDirectory,
    outcome: str | None = None,
    parts: Sequence[SweepDirectory] = (),
    bins: int | None = None,
) -> SweepReport:
    """Of a sweep as it is now, also while it runs. `outcome` and `bins` as for `write_report`; `parts`: all shards of
    the sweep, if it has some."""
    spec = directory.spec
    parts = tuple(parts) or (directory,)
    with SweepData.open(*(part.place for part in parts)).reading() as connection:
        pool, question = pooling(spec), read_question(connection, spec, outcome)
        bins_of = equal_bins(bins, fine_bins)
        rates = by_title(rates_by(connection, [spec], question.ending, bins_of).to_pylist())
        regions = read_regions(connection, spec, question, bins)
        ranked = [
            *(regions.explained if regions else ()),
            *(title for title, rows in rates.items() if rows[0]["condition"]),
        ]
        is_intervened = INTERVENTION in spec.parameters()
        return SweepReport(
            directory=directory,
            parts=parts,
            results=read_results(connection, spec),
            question=question,
            asked=rate_of(connection, question.ending, spec),
            rates=rates,
            drawn=tuple(title for title in rates if title in ranked[:MAX_PARAMETERS]),
            regions=regions,
            diagram=read_diagram(connection, spec, regions),
            tables={
                "outcomes": facts.outcome_shares(connection, pool),
                "curves": learning_curves(connection).to_pylist(),
                "levels": facts.reference_levels(connection),
                "metrics": facts.metric_curves(connection),
                "events": facts.events(connection, trials_count_once(spec)),
                "roles": role_rates(connection, spec).to_pylist(),
                "interventions": interventions(connection, spec.workload).to_pylist() if is_intervened else [],
                "certificates": facts.certificate_shares(connection, pool),
                "costs": facts.pack_costs(connection),
                "failures": facts.failures(connection),
            },
            trials=read_trials(connection, spec),
            totals=facts.totals(connection),
            notes={
                "asked": outcome or "",
                "stuck": ", ".join(label for label, kind in outcomes_of(connection).items() if kind.is_stuck),
            },
        )
