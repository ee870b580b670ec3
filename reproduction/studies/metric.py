"""The metric of attention: the same functions trained as k^t q (merged) or as k and q (factored), system P.

Two laws for small starts, and what follows for runaways: docs/zeros.md, merged or factored. The loss is exact, the
optimizer gradient descent. Axes: L training.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import mean_row, median_row, share_row
from attnsweep.reproduction.studies.metric_figure import Measured, metric_figure
from attnsweep.reproduction.studies.metric_flow import opposed_shares
from attnsweep.reproduction.threads import one_thread
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.programs import NoCompilerError, block_engine
from attnsweep.workloads.engine.shape_programs import Programs
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
N, M, LEARNING_RATE = 10, 20, 0.03
_ROOT = math.sqrt(((M - N + 1) / 2) ** 2 + N - 1)
LAMBDA_PLUS, LAMBDA_MINUS = (2 / N * math.sqrt((M - 1) * ((N - 1 + M) / 2 + sign * _ROOT)) for sign in (1, -1))
GROWTH_PLUS, GROWTH_MINUS = (math.log1p(LEARNING_RATE * rate) for rate in (LAMBDA_PLUS, LAMBDA_MINUS))
"""Growth per step of the two unstable modes of the zero: ln(1 + learning rate * lambda)."""
LEFT_BELOW = 0.99
"""The zero is left where the level falls below this."""
_SMALL = 1e-3
"""The law of the merged share is of leading order in sigma: it is fitted to at most this."""
_PACK = 4096
_WORTH_COMPILING = 256
"""Trainings from which on compiling their step takes less time than it saves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The size of the study.

    Attributes:
        n_draws: Independent sets of seeds; each gets its own rows.
        n_merged, n_factored: Seeds per draw and sigma, for the shares of runaways.
        n_escape: Seeds per draw and sigma, for the escape times.
        n_flow: Starts of the scale-free flow.
        merged, factored: The values of sigma, for runaways.
        escape: Those of escape times, by form.
    """

    n_draws: int = 2
    n_merged: int = 12_288
    n_factored: int = 6_144
    n_escape: int = 512
    n_flow: int = 16_384
    merged: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    factored: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01)
    merged_escape: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    factored_escape: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003)


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains some 200,000 small models and draws the two laws."""
    return compare(directory, console, Size())


def compare(directory: Path, console: Console, size: Size) -> Comparison:
    """The study with these numbers of seeds."""
    rows: list[ComparedValue] = []
    measured = Measured(runaways={}, escapes={}, laws=(GROWTH_PLUS / GROWTH_MINUS - 1, GROWTH_PLUS))
    with one_thread():
        for draw in range(size.n_draws):
            for form, sigmas, n in (
                ("merged", size.merged, size.n_merged),
                ("factored", size.factored, size.n_factored),
            ):
                console.print(f"draw {draw + 1}: {form}, {n:,} seeds for each of {len(sigmas)} sigmas")
                rows += _runaways(form, sigmas, n, draw, measured)
            for form, sigmas in (("merged", size.merged_escape), ("factored", size.factored_escape)):
                rows += _escapes(form, sigmas, size.n_escape, draw, measured)
        for form in ("merged", "factored"):
            rows += _slope_rows("all draws", form, measured.runaways[form])
        console.print("the scale-free flow")
        table = opposed_shares(N, M, size.n_flow)
    return Comparison(
        title="Merged or factored: how often system P runs away, and how long it stays at the zero",
        source="attnsweep, docs/zeros.md",
        rows=rows,
        tables=[("Scale-free flow, three factors: share with alpha beta < 0 after |v| has grown by a factor", table)],
        figures=save_figure(metric_figure(measured), directory, "metric"),
        notes=[
            f"N = {N}, M = {M}, learning rate {LEARNING_RATE}. No published value: the derived ones are ours.",
            "Slopes of shares: weighted least squares of logarithms, over sigma <= 0.001 (merged) or all (factored).",
            "Slopes of times: one per seed, between the two smallest sigmas; the mean over seeds.",
        ],
    )


def _train(form: str, sigma: float, seeds: range, n_steps: int, probes: NDArray[np.int64] | None = None) -> "_Ends":
    values: dict[str, Value] = {"n_categories": N, "n_positions": M, "learning_rate": LEARNING_RATE}
    parameters = defaults(WORKLOAD, **values, qk=form, init_sigma=sigma, n_steps=n_steps)
    extra = () if probes is None else tuple(probes.tolist())
    outcomes, escapes = [], []
    for start in range(seeds.start, seeds.stop, _PACK):
        trainings = [Training(parameters, seed) for seed in range(start, min(start + _PACK, seeds.stop))]
        programs = _programs() if len(trainings) >= _WORTH_COMPILING else None
        pack = Pack(WORKLOAD, trainings, extra_probe_steps=extra, programs=programs)
        while not pack.advance(100_000):
            pass
        result = pack.result()
        outcomes.append(result.at_last_probe(judged(WORKLOAD, parameters, result.evidence).outcome))
        has_left = np.nan_to_num(result.evidence.metrics["eval_loss"], nan=np.inf) < LEFT_BELOW
        steps = result.evidence.steps[has_left.argmax(1)].astype(np.float64)
        escapes.append(np.where(has_left.any(1), steps, np.inf))
    return _Ends(np.concatenate(outcomes), np.concatenate(escapes))


@dataclass(frozen=True, slots=True)
class _Ends:
    """How L trainings ended: outcomes (L,), and the steps (L,) at which they left the zero."""

    outcome: NDArray[np.str_]
    escape: NDArray[np.float64]


_known: list[Programs] = []


def _programs() -> Programs | None:
    """The block engine's programs, compiled once; `None` on a machine that cannot compile."""
    try:
        block_engine()
    except NoCompilerError:
        return None
    if not _known:
        _known.append(Programs())
    return _known[0]


def _n_steps(form: str, sigma: float) -> int:
    """Enough steps to leave the zero and to solve, for all but the slowest seeds."""
    if form == "merged":
        return 2000 + round(2 * math.log(1 / sigma) / GROWTH_PLUS)
    return 1000 + round(4 / (sigma * GROWTH_PLUS))


def _runaways(form: str, sigmas: tuple[float, ...], n: int, draw: int, measured: Measured) -> list[ComparedValue]:
    rows, counts = [], []
    for sigma in sigmas:
        ends = _train(form, sigma, range(draw * n, (draw + 1) * n), _n_steps(form, sigma))
        n_away, n_decided = (int(np.isin(ends.outcome, names).sum()) for names in (["runaway"], ["runaway", "solved"]))
        rows.append(share_row(f"draw {draw + 1}, {form}, sigma {sigma:g}: runaway", n_away, n))
        counts.append(n_away)
        measured.runaways.setdefault(form, []).append((sigma, n_away, n))
        if n_decided < n:
            rows.append(share_row("  neither solved nor running away yet", n - n_decided, n))
    return [
        *rows,
        *_slope_rows(f"draw {draw + 1}", form, [(sigma, k, n) for sigma, k in zip(sigmas, counts, strict=True)]),
    ]


def _slope_rows(name: str, form: str, counts: list[tuple[float, int, int]]) -> list[ComparedValue]:
    """The slope of the share, from (sigma, runaways, trainings); no row if fewer than two sigmas have runaways."""
    largest, derived = (_SMALL, GROWTH_PLUS / GROWTH_MINUS - 1) if form == "merged" else (1.0, None)
    sigma, k, n = np.array([each for each in counts if each[0] <= largest and each[1]]).reshape(-1, 3).T
    if len(np.unique(sigma)) < 2:
        return []
    slope, half = _slope(sigma, k, n)
    return [
        ComparedValue(
            name=f"{name}, {form}: slope of log share against log sigma",
            published=None if derived is None else f"{derived:.3f} (derived)",
            ours=slope,
            low=slope - half,
            high=slope + half,
            agrees=None if derived is None else slope - half <= derived <= slope + half,
        )
    ]


def _slope(sigmas: NDArray[np.float64], counts: NDArray[np.float64], n: NDArray[np.float64]) -> tuple[float, float]:
    """The slope of log share against log sigma, and half its 95% interval; shares weigh by their own error."""
    share = counts / n
    weight = n * share / (1 - share)
    x, y = np.log(sigmas), np.log(share)
    centred = x - np.average(x, weights=weight)
    information = float((weight * centred**2).sum())
    return float((weight * centred * y).sum()) / information, 1.96 / math.sqrt(information)


def _escape_probes(form: str, sigma: float) -> NDArray[np.int64]:
    """The steps at which to look whether the zero was left: each one for two factors, 1% apart for three."""
    if form == "merged":
        return np.arange(1, 60 + round(2 * math.log(1 / sigma) / GROWTH_PLUS))
    last = 4 / (sigma * GROWTH_PLUS)
    return np.unique(np.geomspace(last / 40, last, 300).round().astype(np.int64))


def _escapes(form: str, sigmas: tuple[float, ...], n: int, draw: int, measured: Measured) -> list[ComparedValue]:
    """Escape times: of the same draws at every sigma."""
    rows, times = [], []
    seeds = range(10**6 + draw * n, 10**6 + (draw + 1) * n)
    for sigma in sigmas:
        probes = _escape_probes(form, sigma)
        times.append(_train(form, sigma, seeds, int(probes[-1]), probes).escape)
        unit = sigma * GROWTH_PLUS if form == "factored" else 1.0
        name = f"draw {draw + 1}, {form}, sigma {sigma:g}: " + (
            "sigma ln(1 + lr lambda_+) T" if form == "factored" else "T, steps"
        )
        rows.append(median_row(name, (unit * times[-1]).tolist(), published=None))
        measured.escapes.setdefault(form, []).append((sigma, *np.quantile(times[-1], [0.25, 0.5, 0.75]).tolist()))
    have_left = np.isfinite(times[-1]) & np.isfinite(times[-2])
    last, before = times[-1][have_left], times[-2][have_left]
    ratio = math.log(sigmas[-2] / sigmas[-1])
    if form == "merged":
        slopes, derived, name = (last - before) / ratio, 1 / GROWTH_PLUS, "steps per factor e of sigma"
    else:
        slopes, derived, name = np.log(last / before) / ratio, 1.0, "- slope of log T against log sigma"
    correlation = np.corrcoef(np.log(last), np.log(before))[0, 1]
    return [
        *rows,
        mean_row(f"draw {draw + 1}, {form}: {name}", slopes.tolist(), published=f"{derived:.3f} (derived)"),
        ComparedValue(name="  correlation of log T between the two, over seeds", published=None, ours=correlation),
    ]
