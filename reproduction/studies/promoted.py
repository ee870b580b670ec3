"""docs/notes/precision.md: which float32 trainings are stuck at a zero of the loss, and which are held there only by
rounding.

Axes: T trial.
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

from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooled_rate
from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import rate_row, rate_text
from attnsweep.reproduction.studies.full_models import parameters_of
from attnsweep.reproduction.studies.mission_pairs import Trials, at_scale_one, border
from attnsweep.reproduction.trained import one_thread, swept
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.diagnostics.promotion import stays_when_promoted

Floats = NDArray[np.float64]

_AT_ONCE = 64
_BINS_PER_DECADE = 4
_COLOURS = ("#D55E00", "#0072B2", "#000000")
"""The colours of the curves, from Okabe & Ito 2008."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 256 trials x 4 seeds of full models, and those that are stuck in float32 again in float64."""
    return compare(swept("mission_pairs", directory, console), directory, console)


def compare(sweep: SweepDirectory, directory: Path, console: Console) -> Comparison:
    """Repeats every stuck float32 training of a finished sweep in float64, and compares the borders."""
    rows = Ledger(sweep.place).trainings(filter=(pc.field("param_dtype") == "float32") & pc.field("stuck")).to_pylist()
    console.print(f"promoting {len(rows)} stuck trainings of float32")
    with one_thread():
        stays = promoted(sweep, rows)
    curves = _curves(sweep, rows, stays)
    borders = [border(f"{name}: border in init_sigma", curve, at_scale_one(curve)) for name, curve in curves.items()]
    return Comparison(
        title="Stuck in float32: at a zero of the loss, or of the arithmetic?",
        source="attnsweep, docs/notes/precision.md",
        rows=[_freed(rows, stays), *borders],
        tables=[("By initialization, moved to scale one", _by_sigma(curves))],
        figures=save_figure(_figure(curves, borders), directory, "zeros_promoted"),
        notes=[
            "Promotion: repeated in float64, from the own start and from the end (docs/notes/precision.md).",
            "init_sigma is divided by what the attention scale multiplies the border by, as derived.",
        ],
    )


def promoted(sweep: SweepDirectory, rows: list[dict[str, Any]]) -> NDArray[np.bool_]:
    """Returns for each of the rows whether its training is stuck in float64 too, (len(rows),)."""
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
    """Reports the share of trainings that float64 frees; the trainings of one trial count as dependent."""
    trials = np.array([row["trial"] for row in rows])
    masks = [trials == trial for trial in np.unique(trials)]
    rate = pooled_rate([(int(mask.sum()), int((~stays[mask]).sum())) for mask in masks])
    return rate_row("stuck trainings of float32 that rounding alone holds", rate)


def _curves(sweep: SweepDirectory, rows: list[dict[str, Any]], stays: NDArray[np.bool_]) -> dict[str, Trials]:
    """Returns the trials of each curve; `n_zero` counts the trainings that the curve shows."""
    trials = Trials.read(sweep)
    trainings = Ledger(sweep.place).trainings(columns=["trial"], filter=pc.field("outcome") != "failed")
    number = np.unique(trainings["trial"].to_numpy())
    at_zero = [
        row for row, is_stuck in zip(rows, stays, strict=True) if is_stuck and row["outcome"] == "degenerate_zero"
    ]
    stay = [row["trial"] for row in at_zero]
    n_in_both = (number[:, None] == np.array(stay, dtype=number.dtype)).sum(1)
    is_float32 = trials.dtype == "float32"
    in_both = replace(trials, n_zero=n_in_both.astype(float))
    return {
        "float32": trials.where(is_float32),
        "float32, float64 stuck too": in_both.where(is_float32),
        "float64": trials.where(~is_float32),
    }


def _by_sigma(curves: Mapping[str, Trials]) -> list[list[str]]:
    lines = [["init_sigma", "trainings", *curves]]
    for index in _bins(curves):
        rates = [_rate(trials, index) for trials in curves.values()]
        ends = "..".join(f"{10 ** (end / _BINS_PER_DECADE):.2g}" for end in (index, index + 1))
        lines.append([ends, str(rates[0].n), *map(rate_text, rates)])
    return lines


def _place(trials: Trials) -> Floats:
    """Returns the bin of each trial, (T,)."""
    return np.asarray(np.floor(_BINS_PER_DECADE * np.log10(at_scale_one(trials))))


def _bins(curves: Mapping[str, Trials]) -> range:
    places = np.concatenate([_place(trials) for trials in curves.values()])
    return range(int(places.min()), int(places.max()) + 1)


def _rate(trials: Trials, index: int) -> Rate:
    return trials.where(_place(trials) == index).at_zero


def _figure(curves: Mapping[str, Trials], borders: Sequence[ComparedValue]) -> Figure:
    """Draws the shares at the zero by `init_sigma`, with the borders and their intervals."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained", dpi=160)
    panel = figure.subplots()
    for shift, (name, border_row) in enumerate(zip(curves, borders, strict=False)):
        all_rates = {index: _rate(curves[name], index) for index in _bins(curves)}
        rates = {index: rate for index, rate in all_rates.items() if rate.share is not None}
        x = 10 ** ((np.array(list(rates)) + 0.4 + 0.1 * shift) / _BINS_PER_DECADE)
        share, low, high = np.array([(rate.share, rate.low, rate.high) for rate in rates.values()], dtype=float).T
        error = np.clip([share - low, high - share], 0, None)
        panel.errorbar(x, share, error, color=_COLOURS[shift], marker="o", markersize=4, linewidth=1.2, label=name)
        if border_row.low is not None and border_row.high is not None:
            panel.axvspan(border_row.low, border_row.high, color=_COLOURS[shift], alpha=0.15, linewidth=0)
    framed(panel, xscale="log", xlabel="init_sigma, moved to scale one", ylabel="share at the dead-attention zero")
    panel.legend(frameon=False, fontsize=8)
    return figure
