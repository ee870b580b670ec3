"""Study of docs/notes/precision.md: which float32 trainings of the sweep `mission_pairs` are held at a zero of the
gradient only by rounding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import Rate
from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import rate_row, rate_text
from attnsweep.reproduction.studies.full_models import parameters_of
from attnsweep.reproduction.studies.mission_pairs import Trials, at_scale_one, border, share_of
from attnsweep.reproduction.trained import one_thread, swept
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.diagnostics.promotion import stays_when_promoted

_AT_ONCE = 64
_BINS_PER_DECADE = 4
_COLOURS = ("#D55E00", "#0072B2", "#000000")


def reproduce_promoted(directory: Path, console: Console) -> Comparison:
    """Runs a sweep of full models (attention, LayerNorm and a feed-forward part) with 256 trials x 4 seeds, and repeats
    in float64 the trainings that are stuck in float32.
    """
    return compare_promoted(swept("mission_pairs", directory, console), directory, console)


def compare_promoted(sweep: SweepDirectory, directory: Path, console: Console) -> Comparison:
    """Repeats the stuck trainings of a float32 sweep in float64, and reports for both types the init_sigma at which
    half of the trainings are stuck.
    """
    rows = Ledger(sweep.place).trainings(filter=(pc.field("param_dtype") == "float32") & pc.field("stuck")).to_pylist()
    console.print(f"promoting {len(rows)} stuck trainings of float32")
    with one_thread():
        stays = promoted(sweep, rows)
    curves = _curves(sweep, rows, stays)
    indices, rates = _binned(curves)
    borders = [border(f"{name}: border in init_sigma", curve, at_scale_one(curve)) for name, curve in curves.items()]
    return Comparison(
        title="Stuck in float32: at a zero of the loss, or of the arithmetic?",
        source="attnsweep, docs/notes/precision.md",
        rows=[_freed(rows, stays), *borders],
        tables=[("By initialization, moved to scale one", _by_moved_sigma(indices, rates))],
        figures=save_figure(_figure(indices, rates, borders), directory, "zeros_promoted"),
        notes=[
            "Promotion: repeated in float64, from the own start and from the end (docs/notes/precision.md).",
            "init_sigma is divided by what the attention scale multiplies the border by, as derived.",
        ],
    )


def promoted(sweep: SweepDirectory, rows: list[dict[str, Any]]) -> NDArray[np.bool_]:
    """Repeats in float64 the given trainings that are stuck in float32. Returns which of them are stuck in float64 too,
    (len(rows),).
    """
    stays = np.zeros(len(rows), dtype=bool)
    keys = [parameters_of(row).static_key() for row in rows]
    for key in dict.fromkeys(keys):
        same_key = [index for index, row_key in enumerate(keys) if row_key == key]
        for first in range(0, len(same_key), _AT_ONCE):
            chosen = same_key[first : first + _AT_ONCE]
            lanes, state = ended_lanes(sweep, [rows[index]["training_id"] for index in chosen])
            stays[chosen] = stays_when_promoted(CategoryPairs(), lanes, state)
    return stays


def _freed(rows: list[dict[str, Any]], stays: NDArray[np.bool_]) -> ComparedValue:
    """Reports the share of trainings stuck in float32 that are free when repeated in float64, with an interval. The
    interval takes into account that trainings of one trial end alike.
    """
    _, place = np.unique([row["trial"] for row in rows], return_inverse=True)
    rate = share_of(np.bincount(place), np.bincount(place, weights=~stays))
    return rate_row("stuck trainings of float32 that rounding alone holds", rate)


def _curves(sweep: SweepDirectory, rows: list[dict[str, Any]], stays: NDArray[np.bool_]) -> dict[str, Trials]:
    """Returns the trials behind each of three curves, by the curve's name: those in float32, those in float64,
    and those in float32 once more, where only the trainings count that are stuck in float64 too.

    A curve shows the share of trainings that end where the gradient is zero. A trial's `n_zero` is the number of its
    trainings that count so.
    """
    trials = Trials.read(sweep)
    trainings = Ledger(sweep.place).trainings(columns=["trial"], filter=pc.field("outcome") != "failed")
    number = np.unique(trainings["trial"].to_numpy())
    ends = zip(rows, stays, strict=True)
    stay = [row["trial"] for row, is_stuck in ends if is_stuck and row["outcome"] == "degenerate_zero"]
    n_in_both = (number[:, None] == np.array(stay, dtype=number.dtype)).sum(1)
    is_float32 = trials.dtype == "float32"
    in_both = replace(trials, n_zero=n_in_both.astype(float))
    return {
        "float32": trials.where(is_float32),
        "float32, float64 stuck too": in_both.where(is_float32),
        "float64": trials.where(~is_float32),
    }


def _binned(curves: Mapping[str, Trials]) -> tuple[range, dict[str, list[Rate]]]:
    """Computes for each curve of the figure, which is a set of trials, the rate of trainings that end where the
    gradient is zero, in bins of log10(init_sigma). Returns the indices of the bins, and the rates by the curve's name.
    """
    places = {name: np.floor(_BINS_PER_DECADE * np.log10(at_scale_one(trials))) for name, trials in curves.items()}
    every = np.concatenate(list(places.values()))
    indices = range(int(every.min()), int(every.max()) + 1)
    return indices, {
        name: [trials.where(places[name] == index).at_zero for index in indices] for name, trials in curves.items()
    }


def _by_moved_sigma(indices: range, rates: Mapping[str, list[Rate]]) -> list[list[str]]:
    lines = [["init_sigma", "trainings", *rates]]
    for index, of_bin in zip(indices, zip(*rates.values(), strict=True), strict=True):
        ends = "..".join(f"{10 ** (end / _BINS_PER_DECADE):.2g}" for end in (index, index + 1))
        lines.append([ends, str(of_bin[0].n), *map(rate_text, of_bin)])
    return lines


def _figure(indices: range, rates: Mapping[str, list[Rate]], borders: Sequence[ComparedValue]) -> Figure:
    """Draws against `init_sigma` how often trainings end at a zero of the gradient, and marks the `init_sigma` at which
    half of them do, with its interval.
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained", dpi=160)
    panel = figure.subplots()
    for shift, ((name, of_curve), at) in enumerate(zip(rates.items(), borders, strict=False)):
        known = [(index, rate) for index, rate in zip(indices, of_curve, strict=True) if rate.share is not None]
        x = 10 ** ((np.array([index for index, _ in known]) + 0.4 + 0.1 * shift) / _BINS_PER_DECADE)
        share, low, high = np.array([rate.interval for _, rate in known], dtype=float).T
        error = np.clip([share - low, high - share], 0, None)
        panel.errorbar(x, share, error, color=_COLOURS[shift], marker="o", markersize=4, linewidth=1.2, label=name)
        if at.low is not None and at.high is not None:
            panel.axvspan(at.low, at.high, color=_COLOURS[shift], alpha=0.15, linewidth=0)
    framed(panel, xscale="log", xlabel="init_sigma, moved to scale one", ylabel="share at the dead-attention zero")
    panel.legend(frameon=False, fontsize=8)
    return figure
