"""Compares two ways to train system P (attention by positions): the product of key and query matrix as one parameter
(merged), or keys and queries as two (factored). Both express the same functions but train differently.

The study measures for small starts when trainings leave the zero of the gradient (escape), and how many end as
runaways, whose weights grow without end: docs/notes/merged_or_factored.md. The loss is exact, the optimizer gradient
descent. Axes: L training.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import mean_row, median_row, share_row, value_row
from attnsweep.reproduction.studies.metric_laws import (
    Forecast,
    RunawayLaw,
    factored_exponent,
    fastest_rate,
    fitted_slope,
    law_rows,
    opposed_shares,
)
from attnsweep.reproduction.trained import one_thread, trained
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.vocabulary import AT_LEVEL

WORKLOAD = CategoryPairs()
N, M, LEARNING_RATE = 10, 20, 0.03
LAMBDA_PLUS = fastest_rate(N, M)
GROWTH_PLUS = math.log1p(LEARNING_RATE * LAMBDA_PLUS)
"""The growth per step of the faster unstable mode of the gradient's zero: ln(1 + learning rate * lambda)."""
LEFT_BELOW = 1.0 - AT_LEVEL
"""A training has left the gradient's zero when its loss, which is 1 there, is below this."""
_PACK = 4096
_WORTH_COMPILING = 256
"""From this number of trainings on, compiling their step saves more time than it takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How many trainings the study runs with keys and queries as one matrix (merged) and as two (factored), and at
    which values of `init_sigma`.

    Attributes:
        n_draws: The number of independent sets of seeds; each gets its own rows.
        first_draw: The number of the first draw; other numbers stand for other trainings.
        n_merged, n_factored: Seeds per draw and sigma, to measure the shares of runaways (trainings whose weights grow
            without end).
        n_escape: Seeds per draw and sigma, to measure the escape times (steps to leave the zero of the gradient).
        n_flow: The number of starts of the scale-free flow, the descent in the limit of small starts.
        merged, factored: The values of sigma at which runaways are counted.
        merged_escape, factored_escape: The values of sigma at which escape times are measured.
    """

    n_draws: int = 2
    first_draw: int = 0
    n_merged: int = 12_288
    n_factored: int = 6_144
    n_escape: int = 512
    n_flow: int = 16_384
    merged: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    factored: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01)
    merged_escape: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    factored_escape: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003)


FULL_SIZE = Size()

_COLOURS = {"merged": "#0072B2", "factored": "#D55E00"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The measurements that `metric_figure` draws: how many trainings are runaways, whose weights grow without end, and
    after how many steps trainings move away from the weights at which the gradient is 0.

    Attributes:
        runaways: By form: (sigma, runaways, trainings) of each draw.
        escapes: By form: (sigma, quartiles of the steps to leave the zero) of each draw.
        share: Returns the derived share of runaways at a sigma, for the merged form.
        growth: The growth per step of the faster unstable mode of the zero, ln(1 + learning rate * lambda).
    """

    runaways: dict[str, list[tuple[float, int, int]]]
    escapes: dict[str, list[tuple[float, float, float, float]]]
    share: Callable[[float], float]
    growth: float


def reproduce(directory: Path, console: Console, size: Size = FULL_SIZE) -> Comparison:
    """Trains some 200,000 small models to test formulas for the share of runaways (trainings whose weights grow without
    end) and for the steps at which trainings move away from the weights where the gradient is 0.
    """
    rows: list[ComparedValue] = []
    with one_thread():
        law = RunawayLaw.of(N, M, LEARNING_RATE)
        measured = Measured(runaways={}, escapes={}, share=law.share, growth=law.growth[0])
        forecasts: list[Forecast] = []
        for draw in range(size.first_draw, size.first_draw + size.n_draws):
            console.print(f"draw {draw + 1}: merged, {size.n_merged:,} seeds for each of {len(size.merged)} sigmas")
            rows += _merged_runaways(size, draw, law, measured, forecasts)
            console.print(
                f"draw {draw + 1}: factored, {size.n_factored:,} seeds for each of {len(size.factored)} sigmas"
            )
            rows += _factored_runaways(size, draw, measured)
            for form, sigmas in (("merged", size.merged_escape), ("factored", size.factored_escape)):
                rows += _escapes(form, sigmas, size.n_escape, draw, measured)
        rows += law_rows(law, forecasts)
        rows += _slope_rows("all draws", measured.runaways["factored"])
        console.print("the scale-free flow")
        table = opposed_shares(N, M, size.n_flow)
    return Comparison(
        title="Merged or factored: how often system P runs away, and how long it stays at the zero",
        source="attnsweep, docs/notes/merged_or_factored.md",
        rows=rows,
        tables=[("Scale-free flow, three factors: share with alpha beta < 0 after |v| has grown by a factor", table)],
        figures=save_figure(metric_figure(measured), directory, "metric"),
        notes=[
            f"N = {N}, M = {M}, learning rate {LEARNING_RATE}. No published value: the derived ones are ours.",
            "Shares, merged: beside each the share of the same starts that the law expects to run away.",
            "Given the starts: the law's share, plus the measured minus the expected share (a control variate).",
            "Slope of factored shares: weighted least squares of logarithms, over all sigmas.",
            "Slopes of times: one per seed, between the two smallest sigmas; the mean over seeds.",
        ],
    )


def _train(
    form: str, sigma: float, seeds: range, n_steps: int, probes: Sequence[int] = ()
) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Trains a model with attention by positions only, once for each seed. Returns the outcomes, and the steps at which
    the trainings leave the point of zero gradient near which they start (infinite if they do not), (n_trainings,) each.

    `form`: whether keys and queries are merged into one matrix or factored into two.
    """
    values: dict[str, Value] = {"n_categories": N, "n_positions": M, "learning_rate": LEARNING_RATE}
    values |= {"qk": form, "init_sigma": sigma, "n_steps": n_steps}
    parts = []
    for start in range(seeds.start, seeds.stop, _PACK):
        chosen = range(start, min(start + _PACK, seeds.stop))
        ended = trained(WORKLOAD, chosen, values, compiled=len(chosen) >= _WORTH_COMPILING, probes=probes)
        has_left = np.nan_to_num(ended.evidence.metrics["eval_loss"], nan=np.inf) < LEFT_BELOW
        steps = ended.evidence.steps[has_left.argmax(1)].astype(np.float64)
        parts.append((ended.outcome, np.where(has_left.any(1), steps, np.inf)))
    outcome, escape = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return outcome, escape


def _n_steps(form: str, sigma: float) -> int:
    """Returns a number of steps that suffices for all but the slowest seeds to solve the task. At first trainings are
    slow, because they start near a point where the gradient is zero.
    """
    if form == "merged":
        return 2000 + round(2 * math.log(1 / sigma) / GROWTH_PLUS)
    return 1000 + round(4 / (sigma * GROWTH_PLUS))


def _merged_runaways(
    size: Size, draw: int, law: RunawayLaw, measured: Measured, forecasts: list[Forecast]
) -> Iterator[ComparedValue]:
    seeds = range(draw * size.n_merged, (draw + 1) * size.n_merged)
    faster, slower = _amplitudes(law, seeds)
    for sigma in size.merged:
        outcome, _ = _train("merged", sigma, seeds, _n_steps("merged", sigma))
        expected = law.forecast(sigma * faster, sigma * slower)
        forecasts.append(Forecast(sigma=sigma, is_away=outcome == "runaway", expected=expected))
        yield from _share_rows(draw, "merged", sigma, outcome, measured, f"{expected.mean():.4f} (law, these starts)")


def _amplitudes(law: RunawayLaw, seeds: range) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the components (n_trainings,) of each seed's initial weights along the two directions in which weights
    grow near the zero of the gradient: the faster and the slower one.

    The amplitudes are those at `init_sigma` 1; starts are proportional to `init_sigma`.
    """
    parameters = defaults(WORKLOAD, n_categories=law.n_categories, n_positions=law.n_positions, init_sigma=1.0)
    lanes = Lanes([Training(parameters, seed) for seed in seeds], torch.device("cpu"))
    start = WORKLOAD.initial(WORKLOAD.build(parameters).to(lanes.dtype), lanes)
    return law.amplitudes(start["q_MK"], start["v_NN"])


def _factored_runaways(size: Size, draw: int, measured: Measured) -> Iterator[ComparedValue]:
    seeds = range(draw * size.n_factored, (draw + 1) * size.n_factored)
    for sigma in size.factored:
        outcome, _ = _train("factored", sigma, seeds, _n_steps("factored", sigma))
        yield from _share_rows(draw, "factored", sigma, outcome, measured, None)
    yield from _slope_rows(f"draw {draw + 1}", measured.runaways["factored"][-len(size.factored) :])


def _share_rows(
    draw: int, form: str, sigma: float, outcome: NDArray[np.str_], measured: Measured, published: str | None
) -> Iterator[ComparedValue]:
    n, n_away = len(outcome), int((outcome == "runaway").sum())
    measured.runaways.setdefault(form, []).append((sigma, n_away, n))
    yield share_row(f"draw {draw + 1}, {form}, sigma {sigma:g}: runaway", n_away, n, published=published)
    if n_undecided := n - n_away - int((outcome == "solved").sum()):
        yield share_row("  neither solved nor running away yet", n_undecided, n)


def _slope_rows(name: str, counts: list[tuple[float, int, int]]) -> list[ComparedValue]:
    """Compares with its derivation the power of `init_sigma` to which the share of trainings whose weights grow without
    end is proportional. In these trainings keys and queries are two matrices.

    There is no row if fewer than two sigmas have runaways.
    """
    sigma, k, n = np.array([count for count in counts if count[1]]).reshape(-1, 3).T
    if len(np.unique(sigma)) < 2:
        return []
    slope, half = fitted_slope(sigma, k, n)
    name = f"{name}, factored: slope of log share against log sigma"
    derived = f"{factored_exponent(N, M):.3f} (derived, for small sigma)"
    return [ComparedValue(name=name, published=derived, ours=slope, low=slope - half, high=slope + half)]


def _escape_probes(form: str, sigma: float) -> Sequence[int]:
    """Returns the steps at which the study tests whether a training has moved away from its start, near which the
    gradient is 0.

    These are all steps if keys and queries are one matrix; if they are two, each step is about 1% after the last.
    """
    if form == "merged":
        return range(1, 60 + round(2 * math.log(1 / sigma) / GROWTH_PLUS))
    last = 4 / (sigma * GROWTH_PLUS)
    probes: list[int] = np.unique(np.geomspace(last / 40, last, 300).round().astype(np.int64)).tolist()
    return probes


def _escapes(form: str, sigmas: tuple[float, ...], n: int, draw: int, measured: Measured) -> Iterator[ComparedValue]:
    """Trains from small random weights, and measures after how many steps the weights have left the neighbourhood of 0,
    where the gradient vanishes. Yields rows with this number of steps, and with tests of the formula for it.

    The same seeds are used at all values of `init_sigma`.
    """
    is_merged, times = form == "merged", []
    seeds = range(10**6 + draw * n, 10**6 + (draw + 1) * n)
    for sigma in sigmas:
        probes = _escape_probes(form, sigma)
        times.append(_train(form, sigma, seeds, probes[-1], probes)[1])
        unit, title = (1.0, "T, steps") if is_merged else (sigma * GROWTH_PLUS, "sigma ln(1 + lr lambda_+) T")
        yield median_row(
            f"draw {draw + 1}, {form}, sigma {sigma:g}: {title}", (unit * times[-1]).tolist(), published=None
        )
        measured.escapes.setdefault(form, []).append((sigma, *np.quantile(times[-1], [0.25, 0.5, 0.75]).tolist()))
    have_left = np.isfinite(times[-1]) & np.isfinite(times[-2])
    last, previous = times[-1][have_left], times[-2][have_left]
    ratio = math.log(sigmas[-2] / sigmas[-1])
    if is_merged:
        slopes, derived, name = (last - previous) / ratio, 1 / GROWTH_PLUS, "steps per factor e of sigma"
    else:
        slopes, derived, name = np.log(last / previous) / ratio, 1.0, "- slope of log T against log sigma"
    yield mean_row(f"draw {draw + 1}, {form}: {name}", slopes.tolist(), published=f"{derived:.3f} (derived)")
    correlation = np.corrcoef(np.log(last), np.log(previous))[0, 1]
    yield value_row("  correlation of log T between the two, over seeds", correlation)


def metric_figure(measured: Measured) -> Figure:
    """Draws two panels over `init_sigma`: the share of trainings whose weights grow without end, and the number of
    steps that trainings stay near the point of zero gradient where they start. Lines show what theory predicts."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    for form, runaways in measured.runaways.items():
        for sigma, k, n in runaways:
            rate = binomial_rate(k, n)
            if rate.share and rate.low is not None and rate.high is not None:
                error = [[rate.share - rate.low], [rate.high - rate.share]]
                left.errorbar([sigma], [rate.share], error, fmt="o", markersize=4, color=_COLOURS[form])
    for form, escapes in measured.escapes.items():
        for sigma, low, middle, high in escapes:
            error = [[middle - low], [high - middle]]
            right.errorbar([sigma], [middle], error, fmt="o", markersize=4, color=_COLOURS[form])
    _draw_laws(left, right, measured)
    left.set_ylabel("share of runaways (95% intervals)")
    right.set_ylabel("steps at the zero (median, quartiles)")
    for panel in (left, right):
        framed(panel, xscale="log", yscale="log", xlabel=r"init_sigma $\sigma$")
        for form, colour in _COLOURS.items():
            panel.plot([], [], "o", markersize=4, color=colour, label=form)
        panel.legend(frameon=False, fontsize=8)
    return figure


def _draw_laws(left: Axes, right: Axes, measured: Measured) -> None:
    x = np.geomspace(min(measured.runaways["merged"])[0], 0.1, 50)
    left.plot(x, [measured.share(sigma) for sigma in x], color=_COLOURS["merged"], linewidth=0.8)
    for form, escapes in measured.escapes.items():
        sigma, _, middle, _ = min(escapes)
        x = np.geomspace(sigma, 0.1, 50)
        law = middle - np.log(x / sigma) / measured.growth if form == "merged" else middle * sigma / x
        right.plot(x, law, color=_COLOURS[form], linewidth=0.8)
