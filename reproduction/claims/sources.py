"""What measures claims again, on another seed: reproductions, the quickstart, and sweeps that a claim describes.

A source gives numbers by the name of their row. In-process studies take their trainings' seeds from another range; the
sweep behind a reproduction runs with another `--seed`, in this process.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.analysis import open_sweep
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooled_rate
from attnsweep.orchestrator.running.session import run_or_resume
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.catalog import REPRODUCTIONS
from attnsweep.reproduction.claims.claim import Trained
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.studies import metric, metric_full, positions, precision
from attnsweep.reproduction.swept import swept
from attnsweep.reproduction.threads import one_thread
from attnsweep.search_spaces.loading import assignment, load_sweep

Numbers = Mapping[str, tuple[float, float, float]]
"""Value, low and high by row."""

_RESOURCES = Resources(local=True, engine="vmapped")
_SEEDS_APART = 10**6
_INTERVAL = re.compile(r"(\S+) \[(\S+), (\S+)\]")
_COUNTS = ("trainings", "heads")
"""Columns of tables that say how many there are."""
_SWEEPS = {
    "shin-fig1": "shin_solution_2",
    "shin-fig2": "shin_flavours",
    "chiang-fig4": "chiang_fig4",
    "chiang-fig4-long": "chiang_fig4_long",
    "chiang-parity": "chiang_parity",
    "chiang-table1": "translation_lengths",
    "gpt-stages": "gpt_stages",
    "zeros-full": "stuck_full",
    "translator-heads": "head_roles",
    "translator-structure": "attention_structure",
}
"""The sweep behind a reproduction."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement again: its seed, the directory of its sweeps and figures, and where progress is shown."""

    seed: int
    directory: Path
    console: Console

    @property
    def first_seed(self) -> int:
        """From which studies without a sweep count."""
        return self.seed * _SEEDS_APART


def measure(source: str, run: Run) -> Numbers:
    """The numbers of a source.

    Raises:
        KeyError: If there is no such source.
    """
    return SOURCES[source](run)


def measure_sweep(trained: Trained, run: Run) -> Rate:
    """The rate that a sweep of its own measures."""
    sweep = load_sweep(trained.sweep).fix(dict(assignment(text) for text in trained.fixed)).but(seed=run.seed)
    if trained.trials is not None:
        sweep = sweep.but(trials=trained.trials)
    if trained.replicates is not None:
        sweep = sweep.but(replicates=trained.replicates)
    directory = run.directory / "-".join([trained.sweep, *(text.replace("=", "_") for text in trained.fixed)])
    run_or_resume(sweep, directory, _RESOURCES, run.console)
    counts = open_sweep(directory).sql(trained.counts).to_pydict()
    n, k = counts.values()
    return pooled_rate(list(zip(n, k, strict=True)))


def _swept(name: str) -> Callable[[Run], Numbers]:
    reproduction = next(each for each in REPRODUCTIONS if each.name == name)

    def measured(run: Run) -> Numbers:
        swept(_SWEEPS[name], run.directory, run.console, seed=run.seed, resources=_RESOURCES)
        return numbers_of(reproduction.run(run.directory, run.console))

    return measured


def _runaways(learning_rate: float) -> Callable[[Run], Numbers]:
    def measured(run: Run) -> Numbers:
        size = positions.Size(first_seed=run.first_seed)
        with one_thread():
            return _numbers(positions.runaways(size, sigma, learning_rate) for sigma in positions.SIGMAS)

    return measured


def _valley(run: Run) -> Numbers:
    with one_thread():
        return _numbers(positions.valley_rows(positions.Size(first_seed=run.first_seed)))


def _metric(run: Run) -> Numbers:
    size = metric.Size(n_draws=1, first_draw=2 * run.seed)
    found = numbers_of(metric.compare(run.directory, run.console, size))
    return {name.replace(f"draw {size.first_draw + 1},", "draw 1,"): numbers for name, numbers in found.items()}


def _metric_full(run: Run) -> Numbers:
    seeds = range(run.first_seed, run.first_seed + metric_full.N_SEEDS)
    return numbers_of(metric_full.compare(run.console, metric_full.SIGMAS, seeds, metric_full.VALUES))


def _precision(run: Run) -> Numbers:
    sweep = swept("precision_border", run.directory, run.console, seed=run.seed, resources=_RESOURCES)
    return numbers_of(precision.compare(sweep, run.console, run.first_seed))


def _quickstart(run: Run) -> Numbers:
    directory = run.directory / "quickstart"
    swept("quickstart", run.directory, run.console, seed=run.seed, resources=_RESOURCES)
    opened = open_sweep(directory)
    by_outcome = {outcome: opened.stuck_rates(outcome=outcome).overall for outcome in ("stuck", "solved")}
    found = {outcome: rate.interval for outcome, rate in by_outcome.items()}
    diagram = opened.phase_diagram("init_sigma", "learning_rate")
    for rate in (0.0003, 0.003):
        value, low, high = (float(each) for each in diagram.at(0.001, rate))
        found[f"modelled at init_sigma 0.001, learning rate {rate:g}: stuck"] = value, low, high
    [rates] = opened.stuck_rates(by="init_sigma").by_parameter
    decade = next(each for each in rates.bins if each.label == "1e-4..1e-3")
    found[f"init_sigma {decade.label}: stuck"] = decade.rate.interval
    return {name: interval for name, interval in found.items() if interval is not None}


SOURCES: Mapping[str, Callable[[Run], Numbers]] = {
    **{name: _swept(name) for name in _SWEEPS},
    "metric": _metric,
    "metric-full": _metric_full,
    "precision": _precision,
    "quickstart": _quickstart,
    **{f"runaways-{each:g}": _runaways(each) for each in positions.LEARNING_RATES},
    "valley": _valley,
}


def numbers_of(comparison: Comparison) -> Numbers:
    """The rows of a comparison that have an interval, and the cells of its tables that are one.

    A cell is named by the texts before the first interval of its line, counts apart, and by its column:
    `init_sigma = 0.1: solved`.
    """
    found = _numbers(comparison.rows)
    for _, (header, *lines) in comparison.tables:
        for line in lines:
            cells = [_INTERVAL.fullmatch(cell) for cell in line]
            n_texts = next((at for at, cell in enumerate(cells) if cell is not None), 0)
            texts = zip(header, line[:n_texts], strict=False)
            name = ", ".join(cell for title, cell in texts if title not in _COUNTS)
            for column, cell in zip(header, cells, strict=True):
                if cell is not None:
                    value, low, high = (float(each) for each in cell.groups())
                    found[f"{name}: {column}"] = (value, low, high)
    return found


def _numbers(rows: Iterable[ComparedValue]) -> dict[str, tuple[float, float, float]]:
    return {
        row.name: (row.ours, row.low, row.high)
        for row in rows
        if not isinstance(row.ours, str) and row.low is not None and row.high is not None
    }
