"""Measures the documentation's claims again on another seed, by running reproductions, the quickstart, and sweeps that
a claim describes.

A source gives numbers by the name of their row. Studies without a sweep take the seeds of their trainings from another
range; the sweep behind a reproduction runs with another `--seed`, in this process.
"""

import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooled_rate
from attnsweep.orchestrator.running.session import run_or_resume
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.catalog import REPRODUCTIONS
from attnsweep.reproduction.claims.claim import Trained
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.shin import figures
from attnsweep.reproduction.studies import (
    fork_border,
    fork_decided,
    gpt,
    metric,
    mission_promoted,
    positions,
    precision,
    translators,
)
from attnsweep.reproduction.trained import one_thread, swept
from attnsweep.search_spaces.loading import assignments, load_sweep
from attnsweep.workloads.errors import UserError

Numbers = Mapping[str, tuple[float, float, float]]
"""A value and the two ends of its interval, by the name of the row."""

_RESOURCES = Resources(local=True, engine="vmapped")
_SEEDS_APART = 10**6
_INTERVAL = re.compile(r"(\S+) \[(\S+), (\S+)\]")
_ENGINES: Mapping[str, Literal["auto", "vmapped"]] = {item.sweep: item.engine for item in REPRODUCTIONS} | {
    "shin_flavours_full": "auto"
}
"""The engine with which the numbers of each sweep were measured."""
_COUNTS = ("trainings", "trials", "heads")
"""The columns of tables that hold counts."""


@dataclass(frozen=True, slots=True)
class Run:
    """The settings with which claims of the documentation are measured again: the seed, the directory for sweeps and
    figures, and the console for progress.
    """

    seed: int
    directory: Path
    console: Console

    @property
    def first_seed(self) -> int:
        """The first of the training seeds, for studies that train without a sweep."""
        return self.seed * _SEEDS_APART


def measure(source: str, run: Run) -> Numbers:
    """Runs the study or sweep with the given name (a source of claims) again with another seed, and returns the numbers
    that it gives.

    Raises:
        KeyError: If there is no such source.
    """
    return SOURCES[source](run)


def measure_sweep(trained: Trained, run: Run) -> Rate:
    """Repeats with another seed the sweep on which a claim rests. Returns the share of its trainings that have the
    claimed property, with the interval of this share.
    """
    sweep = load_sweep(trained.sweep).fix(assignments(trained.fixed)).but(seed=run.seed)
    if trained.trials is not None:
        sweep = sweep.but(trials=trained.trials)
    if trained.replicates is not None:
        sweep = sweep.but(replicates=trained.replicates)
    name = [trained.sweep, *(text.replace("=", "_") for text in trained.fixed), f"{sweep.trials}x{sweep.replicates}"]
    directory = run.directory / "-".join(name)
    run_or_resume(sweep, directory, _RESOURCES, run.console)
    counts = SweepData.open(directory).sql(trained.counts).to_pydict()
    n, k = counts.values()
    return pooled_rate(list(zip(n, k, strict=True)))


def measure_ledger(source: str, sweep: SweepDirectory, directory: Path) -> Numbers:
    """Computes the numbers that claims of the documentation state, from the ledger of a finished sweep. May draw
    figures into `directory`.

    `source` is the name of the computation.

    Raises:
        KeyError: If the source trains without a sweep.
    """
    return SWEPT[source][1](sweep, directory)


def _quickstart(sweep: SweepDirectory, _: Path) -> Numbers:
    opened = SweepData.open(sweep.place)
    intervals = {outcome: opened.stuck_rates(outcome=outcome).overall.interval for outcome in ("stuck", "solved")}
    diagram = opened.phase_diagram("init_sigma", "learning_rate")
    for rate in (0.0003, 0.003):
        value, low, high = (float(number) for number in diagram.at(0.001, rate))
        intervals[f"modelled at init_sigma 0.001, learning rate {rate:g}: stuck"] = value, low, high
    [rates] = opened.stuck_rates(by="init_sigma").by_parameter
    intervals |= {f"init_sigma {part.label}: stuck": part.rate.interval for part in rates.bins}
    return {name: interval for name, interval in intervals.items() if interval is not None}


def _stuck(sweep: SweepDirectory, _: Path) -> Numbers:
    interval = SweepData.open(sweep.place).stuck_rates().overall.interval
    return {} if interval is None else {"stuck": interval}


def _compared(function: str) -> Callable[[SweepDirectory, Path], Numbers]:
    compare: Callable[[SweepDirectory, Path], Comparison] = pkgutil.resolve_name(function)
    return lambda sweep, directory: numbers_of(compare(sweep, directory))


def _promoted(sweep: SweepDirectory, directory: Path) -> Numbers:
    return numbers_of(mission_promoted.compare_promoted(sweep, directory, Console(stderr=True)))


_REPRODUCED = {item.name: (item.sweep, _compared(item.function)) for item in REPRODUCTIONS if item.sweep}
_SAMPLED = _compared("attnsweep.reproduction.studies.mission_pairs:compare_sampler")
SWEPT: Mapping[str, tuple[str, Callable[[SweepDirectory, Path], Numbers]]] = {
    **_REPRODUCED,
    "quickstart": ("quickstart", _quickstart),
    "first-lengths": ("first_lengths", _stuck),
    "parity-learnability": ("parity_learnability", _stuck),
    "precision": ("precision_border", lambda sweep, _: _numbers(precision.sweep_rows(sweep))),
    "shin-fig2-full": ("shin_flavours_full", _REPRODUCED["shin-fig2"][1]),
    "shin-fig3-full": ("shin_flavours_full", lambda sweep, _: _numbers(figures.block_rows(sweep))),
    "zeros-promoted": ("mission_pairs", _promoted),
    "mission-pairs-random": ("mission_pairs", _SAMPLED),
    "mission-pairs-tpe": ("mission_pairs_tpe", _SAMPLED),
    "mission-pairs-boundary": ("mission_pairs_boundary", _SAMPLED),
    "chiang-table1-text": _REPRODUCED["chiang-table1"],
    "positional-text": _REPRODUCED["positional-heads"],
}
"""For each source that is a sweep: the sweep's name, and the function that reads the numbers from it."""


def _swept(name: str) -> Callable[[Run], Numbers]:
    def measured(run: Run) -> Numbers:
        shipped, _ = SWEPT[name]
        engine = _ENGINES.get(shipped, "vmapped")
        sweep = swept(shipped, run.directory, run.console, engine, seed=run.seed, local=True)
        return measure_ledger(name, sweep, run.directory)

    return measured


def _gpt_stages_long(run: Run) -> Numbers:
    spec = (
        load_sweep("gpt_stages")
        .fix({"tied": False, "n_steps": 60, "probe_every": 1})
        .but(trials=16, replicates=96, seed=run.seed)
    )
    directory = run.directory / spec.name
    run_or_resume(spec, directory, _RESOURCES, run.console)
    return numbers_of(gpt.compare_stages(SweepDirectory.open(directory), run.directory))


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
    by_row = numbers_of(metric.reproduce(run.directory, run.console, size))
    return {name.replace(f"draw {size.first_draw + 1},", "draw 1,"): numbers for name, numbers in by_row.items()}


def _metric_full(run: Run) -> Numbers:
    seeds = range(run.first_seed, run.first_seed + precision.N_FORM_SEEDS)
    return numbers_of(precision.reproduce_forms(run.directory, run.console, seeds=seeds))


def _induction_changed(run: Run) -> Numbers:
    return numbers_of(gpt.reproduce_changes(run.directory, run.console, gpt.FIRST_SEED + run.first_seed))


def _power(run: Run) -> Numbers:
    size = translators.Size(first_seed=run.first_seed)
    return numbers_of(translators.reproduce_power(run.directory, run.console, size))


def _on_real_text(run: Run) -> Numbers:
    """Always raises an error that asks for a finished sweep on a real text. No such sweep can be run here, because only
    the user has the corpus."""
    raise UserError(
        "--sweep",
        given=None,
        expected=f"a finished sweep with --seed {run.seed} on the corpus that docs/translation.md describes",
        fix="prepare the corpus and run the sweep as the section Real text of docs/translation.md describes",
    )


def _first_order(run: Run) -> Numbers:
    seeds = range(run.first_seed, run.first_seed + precision.N_FIRST_ORDER)
    return _numbers(precision.first_order_rows(precision.FIRST_ORDER_SIGMAS, seeds))


SOURCES: Mapping[str, Callable[[Run], Numbers]] = {
    **{name: _swept(name) for name in SWEPT},
    "chiang-table1-text": _on_real_text,
    "positional-text": _on_real_text,
    "fork-border": lambda run: numbers_of(fork_border.reproduce(run.directory, run.console, run.seed)),
    "fork-decided": lambda run: numbers_of(fork_decided.reproduce(run.directory, run.console, run.seed)),
    "gpt-stages-long": _gpt_stages_long,
    "induction-changed": _induction_changed,
    "metric": _metric,
    "metric-full": _metric_full,
    "positional-power": _power,
    "precision-first-order": _first_order,
    **{f"runaways-{rate:g}": _runaways(rate) for rate in positions.LEARNING_RATES},
    "valley": _valley,
}


def numbers_of(comparison: Comparison) -> Numbers:
    """Returns by name all numbers that a reproduction reports with an interval, in its list of compared values and in
    its tables.

    A table's cell is named by the texts before the first interval of its line, without counts, and by its column:
    `init_sigma = 0.1: solved`.
    """
    numbers = _numbers(comparison.rows)
    for _, (header, *lines) in comparison.tables:
        for line in lines:
            cells = [_INTERVAL.fullmatch(cell) for cell in line]
            n_texts = next((index for index, cell in enumerate(cells) if cell is not None), 0)
            texts = zip(header, line[:n_texts], strict=False)
            name = ", ".join(cell for title, cell in texts if title not in _COUNTS)
            for column, cell in zip(header, cells, strict=True):
                if cell is not None:
                    value, low, high = (float(number) for number in cell.groups())
                    numbers[f"{name}: {column}"] = (value, low, high)
    return numbers


def _numbers(rows: Iterable[ComparedValue]) -> dict[str, tuple[float, float, float]]:
    return {
        row.name: (row.ours, row.low, row.high)
        for row in rows
        if not isinstance(row.ours, str) and row.low is not None and row.high is not None
    }
