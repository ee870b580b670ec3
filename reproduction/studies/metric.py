"""The metric of attention: the same functions trained as k^t q (merged) or as k and q (factored), system P.

Laws of escape times and of runaways for small starts: docs/zeros.md, merged or factored. The loss is exact, the
optimizer gradient descent. Axes: L training.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.reproduction.block_programs import block_programs
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import mean_row, median_row, share_row
from attnsweep.reproduction.studies.metric_border import factored_exponent
from attnsweep.reproduction.studies.metric_figure import Measured, metric_figure
from attnsweep.reproduction.studies.metric_flow import opposed_shares
from attnsweep.reproduction.studies.metric_law import RunawayLaw
from attnsweep.reproduction.studies.metric_slopes import Forecast, fitted_slope, law_rows
from attnsweep.reproduction.threads import one_thread
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
N, M, LEARNING_RATE = 10, 20, 0.03
_ROOT = math.sqrt(((M - N + 1) / 2) ** 2 + N - 1)
LAMBDA_PLUS = 2 / N * math.sqrt((M - 1) * ((N - 1 + M) / 2 + _ROOT))
GROWTH_PLUS = math.log1p(LEARNING_RATE * LAMBDA_PLUS)
"""Growth per step of the faster unstable mode of the zero: ln(1 + learning rate * lambda)."""
LEFT_BELOW = 0.99
"""The zero is left where the level falls below this."""
_PACK = 4096
_WORTH_COMPILING = 256
"""Trainings from which on compiling their step takes less time than it saves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The size of the study.

    Attributes:
        n_draws: Independent sets of seeds; each gets its own rows.
        first_draw: The first of them; those before it are other trainings.
        n_merged, n_factored: Seeds per draw and sigma, for the shares of runaways.
        n_escape: Seeds per draw and sigma, for the escape times.
        n_flow: Starts of the scale-free flow.
        merged, factored: The values of sigma, for runaways.
        escape: Those of escape times, by form.
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


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains some 200,000 small models and draws the two laws."""
    return compare(directory, console, Size())


def compare(directory: Path, console: Console, size: Size) -> Comparison:
    """The study with these numbers of seeds."""
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
        source="attnsweep, docs/zeros.md",
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


def _train(form: str, sigma: float, seeds: range, n_steps: int, probes: NDArray[np.int64] | None = None) -> "_Ends":
    values: dict[str, Value] = {"n_categories": N, "n_positions": M, "learning_rate": LEARNING_RATE}
    parameters = defaults(WORKLOAD, **values, qk=form, init_sigma=sigma, n_steps=n_steps)
    extra = () if probes is None else tuple(probes.tolist())
    outcomes, escapes = [], []
    for start in range(seeds.start, seeds.stop, _PACK):
        trainings = [Training(parameters, seed) for seed in range(start, min(start + _PACK, seeds.stop))]
        programs = block_programs(WORKLOAD.name) if len(trainings) >= _WORTH_COMPILING else None
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

    @property
    def n_away(self) -> int:
        """How many ran away."""
        return int((self.outcome == "runaway").sum())


def _n_steps(form: str, sigma: float) -> int:
    """Enough steps to leave the zero and to solve, for all but the slowest seeds."""
    if form == "merged":
        return 2000 + round(2 * math.log(1 / sigma) / GROWTH_PLUS)
    return 1000 + round(4 / (sigma * GROWTH_PLUS))


def _merged_runaways(
    size: Size, draw: int, law: RunawayLaw, measured: Measured, forecasts: list[Forecast]
) -> list[ComparedValue]:
    seeds, rows = range(draw * size.n_merged, (draw + 1) * size.n_merged), []
    faster, slower = _amplitudes(law, seeds)
    for sigma in size.merged:
        ends = _train("merged", sigma, seeds, _n_steps("merged", sigma))
        expected = law.forecast(sigma * faster, sigma * slower)
        forecasts.append(Forecast(sigma=sigma, is_away=ends.outcome == "runaway", expected=expected))
        claim = f"{expected.mean():.4f} (law, these starts)"
        rows += _share_rows(f"draw {draw + 1}, merged, sigma {sigma:g}", ends, claim)
        measured.runaways.setdefault("merged", []).append((sigma, ends.n_away, len(seeds)))
    return rows


def _amplitudes(law: RunawayLaw, seeds: range) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(L,) amplitudes of the two modes in these seeds' starts at `init_sigma` 1, to which starts are proportional."""
    parameters = defaults(WORKLOAD, n_categories=law.n_categories, n_positions=law.n_positions, init_sigma=1.0)
    lanes = Lanes([Training(parameters, seed) for seed in seeds], torch.device("cpu"))
    start = WORKLOAD.initial(WORKLOAD.build(parameters).to(lanes.dtype), lanes)
    return law.amplitudes(start["q_MK"], start["v_NN"])


def _factored_runaways(size: Size, draw: int, measured: Measured) -> list[ComparedValue]:
    seeds, rows = range(draw * size.n_factored, (draw + 1) * size.n_factored), []
    counts = []
    for sigma in size.factored:
        ends = _train("factored", sigma, seeds, _n_steps("factored", sigma))
        rows += _share_rows(f"draw {draw + 1}, factored, sigma {sigma:g}", ends, None)
        counts.append((sigma, ends.n_away, len(seeds)))
    measured.runaways.setdefault("factored", []).extend(counts)
    return [*rows, *_slope_rows(f"draw {draw + 1}", counts)]


def _share_rows(name: str, ends: "_Ends", published: str | None) -> list[ComparedValue]:
    n = len(ends.outcome)
    n_undecided = n - int(np.isin(ends.outcome, ["runaway", "solved"]).sum())
    rows = [share_row(f"{name}: runaway", ends.n_away, n, published=published)]
    if n_undecided:
        rows.append(share_row("  neither solved nor running away yet", n_undecided, n))
    return rows


def _slope_rows(name: str, counts: list[tuple[float, int, int]]) -> list[ComparedValue]:
    """The slope of the factored share, from (sigma, runaways, trainings); no row if fewer than two sigmas have some."""
    sigma, k, n = np.array([each for each in counts if each[1]]).reshape(-1, 3).T
    if len(np.unique(sigma)) < 2:
        return []
    slope, half = fitted_slope(sigma, k, n)
    name = f"{name}, factored: slope of log share against log sigma"
    derived = f"{factored_exponent(N, M):.3f} (derived, for small sigma)"
    return [ComparedValue(name=name, published=derived, ours=slope, low=slope - half, high=slope + half)]


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
