"""Gopalani & Hu 2025: the plateau of the loss when a transformer learns moving-window sums. How long it lasts, how the
model behaves on it, and what shortens it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import Bounds, Claim, mean_difference_row, mean_row, median_row, ratio_row, share_row
from attnsweep.reproduction.trained import queried, swept
from attnsweep.search_spaces.catalog.field import abrupt_learning

_SOURCE = "Gopalani & Hu 2025, arXiv 2506.13688, Figures 2 to 4"
_CURVES = """
select param_{by} as factor, coalesce(event_plateau_left, n_steps) as left_at, event_plateau_left is not null as left,
    event_first_answer_learned as first_at, param_n_steps as n_steps, steps, repeats, cosines, progress
from trainings join (
    select training_id, list(step order by step) as steps, list(repetition order by step) as repeats,
        list(collapse order by step) as cosines, list(progress order by step) as progress
    from (pivot curves on metric in ('repetition', 'collapse', 'progress') using any_value(value)
        group by training_id, step) group by 1
) using (training_id) order by factor, trial, replicate
"""
_COLOURS = ("#0072B2", "#56B4E9", "#000000", "#E69F00", "#D55E00")
"""The colours of the curves, from Okabe & Ito 2008."""
_UNFINISHED = "A training that has not left the plateau counts with its last step."
_NEARLY_ALL: Bounds = (0.8, 1.0)
_SHORTER: Bounds = (0.0, 0.99)
_LONGER: Bounds = (1.01, math.inf)


@dataclass(frozen=True, slots=True)
class Plateau:
    """How long each training with one value of a varied parameter stays on the loss plateau, and some metrics of its
    answers during and after the plateau.

    Attributes:
        length: The first probed step at which half of the answers are right, else the last step, (n_trainings,).
        is_left: Whether the training has left the plateau, (n_trainings,).
        first_before: Whether the first answer is learned at a probe before the plateau ends, (n_trainings,).
        repetition, collapse: The means of these two metrics over the probes of the plateau, without the start,
            (n_trainings,).
        progress: The metric `progress` at the plateau's last probe minus its value at the start, (n_trainings,).
        repetition_after, collapse_after: The two metrics at the last probe, (n_trainings,); NaN for trainings still on
            the plateau.
    """

    length: NDArray[np.float64]
    is_left: NDArray[np.bool_]
    first_before: NDArray[np.bool_]
    repetition: NDArray[np.float64]
    collapse: NDArray[np.float64]
    progress: NDArray[np.float64]
    repetition_after: NDArray[np.float64]
    collapse_after: NDArray[np.float64]


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares a finished sweep over `optimal_scale` (a bias of attention towards the right tokens) with Gopalani & Hu
    2025, and draws how many trainings have left the loss plateau at each step."""
    plateaus = plateaus_of(sweep, "optimal_scale")
    return Comparison(
        title="abrupt-learning: the plateau of a moving-window sum, by how well its answers attend",
        source=_SOURCE,
        rows=list(_rows(plateaus)),
        tables=[("Steps on the plateau, by the factor c of the needed attention weights", _table("c", plateaus))],
        figures=save_figure(_figure("c", plateaus), directory, "abrupt_learning"),
        notes=[
            "The plateau ends at the first probe at which half of the answers are right. A training that has not left "
            "it counts with its last step. Ratios are of geometric means.",
            "The rows are held against directions: of lengths the source's text and code give no numbers.",
        ],
    )


def compare_starts(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports how long the loss plateau lasts in a finished sweep, for each value of `init_sigma`."""
    plateaus = plateaus_of(sweep, "init_sigma")
    title = "Steps on the plateau, by the standard deviation of the initialization"
    return Comparison(
        title="abrupt-learning-starts: the plateau of a moving-window sum, by its initialization",
        source="attnsweep, docs/problems/abrupt_learning.md; the source starts at 0.02 with a width of 256",
        rows=_medians({f"init_sigma {sigma:g}": plateau for sigma, plateau in plateaus.items()}),
        tables=[(title, _table("init_sigma", plateaus))],
        figures=save_figure(_figure("init_sigma", plateaus), directory, "abrupt_learning_starts"),
        notes=[_UNFINISHED],
    )


def compare_tasks(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares with the paper how long the loss plateau lasts in a finished sweep, for each task."""
    plateaus = plateaus_of(sweep, "task")
    plain = list(plateaus["window_sum"].length)
    rows = _medians(plateaus)
    for task, published, within in (
        ("reverse", "100 of 400 steps", _SHORTER),
        ("copy", "100 of 400 steps", _SHORTER),
        ("prefix_sum", "1,000 of 400 steps", _LONGER),
    ):
        name = f"{task}: steps on the plateau, over those of window_sum"
        rows.append(ratio_row(name, list(plateaus[task].length), plain, published=published, agrees_within=within))
    return Comparison(
        title="abrupt-learning-tasks: the plateau by the task",
        source="Gopalani & Hu 2025, arXiv 2506.13688, the steps of the repository's configurations",
        rows=rows,
        tables=[("Steps on the plateau, by task", _table("task", plateaus))],
        figures=save_figure(_figure("task", plateaus), directory, "abrupt_learning_tasks"),
        notes=[
            "Published is for how many steps the authors train each task: of a plateau's length it is only a hint. The "
            "rows are held against the direction.",
            _UNFINISHED,
        ],
    )


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """Repeats the sweep over `optimal_scale` (a bias of attention towards the right tokens) at the size of Gopalani &
    Hu's model: width 256, sequences of 16 numbers from 1 to 16, batches of 256, learning rate 1e-4.
    """
    sizes = {"d_model": 256, "length": 16, "n_numbers": 16, "batch_size": 256}
    space = {**sizes, "learning_rate": 1e-4, "init_sigma": 0.02, "n_steps": 2000}
    spec = abrupt_learning.but(name="abrupt_learning_full", space={**abrupt_learning.space, **space})
    return compare(swept(spec.name, directory, console, "auto", changed=spec), directory)


def plateaus_of(sweep: SweepDirectory, by: str) -> Mapping[Any, Plateau]:
    """Groups the trainings of a sweep by their value of the parameter `by`. Returns for each group how long the
    trainings stay on the loss plateau, and metrics of their answers on the plateau and after it.
    """
    rows: dict[Any, list[tuple[float, ...]]] = {}
    for factor, left_at, is_left, first_at, _, *curves in queried(sweep, _CURVES.format(by=by)):
        steps, repeats, cosines, progress = (np.asarray(curve, np.float64) for curve in curves)
        on = (steps > 0) & ((steps < left_at) | (not is_left))
        if not on.any():
            on = steps == 0
        means = repeats[on].mean(), cosines[on].mean(), progress[on][-1] - progress[0]
        ended = (repeats[-1], cosines[-1]) if is_left else (np.nan, np.nan)
        is_first = first_at is not None and first_at < left_at
        rows.setdefault(factor, []).append((left_at, is_left, is_first, *means, *ended))
    return {factor: _plateau(np.array(trainings, np.float64).T) for factor, trainings in sorted(rows.items())}


def _plateau(columns: NDArray[np.float64]) -> Plateau:
    length, is_left, first_before, repetition, collapse, progress, *after = columns
    return Plateau(length, is_left > 0, first_before > 0, repetition, collapse, progress, *after)


def _medians(plateaus: Mapping[str, Plateau]) -> list[ComparedValue]:
    return [
        median_row(f"{name}: steps on the plateau, median", list(plateau.length), published=None)
        for name, plateau in plateaus.items()
    ]


def _rows(plateaus: Mapping[float, Plateau]) -> Iterator[ComparedValue]:
    plain = plateaus[1.0]
    yield from _medians({f"c = {factor:g}": plateau for factor, plateau in plateaus.items()})
    for factor, plateau in plateaus.items():
        if factor != 1.0:
            published, within = ("longer", _LONGER) if factor < 1.0 else ("shorter", _SHORTER)
            name = f"c = {factor:g}: steps on the plateau, over those at c = 1"
            yield ratio_row(name, list(plateau.length), list(plain.length), published=published, agrees_within=within)
    partial: Claim = {"published": "a partial solution", "agrees_within": _NEARLY_ALL}
    n_first = int(plain.first_before.sum())
    yield share_row("c = 1: the first answer is learned on the plateau", n_first, len(plain.length), **partial)
    parallel: Claim = {"published": "nearly parallel", "agrees_within": _NEARLY_ALL}
    yield mean_row("c = 1: mean cosine of states on the plateau", list(plain.collapse), **parallel)
    for metric, name, published in (
        ("repetition", "repetition", "strong repetition bias, ends with it"),
        ("collapse", "mean cosine", "collapse, ends with it"),
    ):
        if plain.is_left.any():
            on, after = (list(getattr(plain, column)[plain.is_left]) for column in (metric, f"{metric}_after"))
            yield mean_difference_row(f"c = 1: {name} on the plateau minus at the end", on, after, published=published)
    yield mean_difference_row(
        "c = 1: attention on needed tokens, last probe of the plateau minus start",
        list(plain.progress),
        [0.0] * len(plain.progress),
        published="hidden progress",
    )
    largest = plateaus[max(plateaus)]
    for metric in ("repetition", "collapse"):
        yield mean_difference_row(
            f"{metric} on the plateau, c = 1 minus c = {max(plateaus):g}",
            list(getattr(plain, metric)),
            list(getattr(largest, metric)),
            published="less severe with a bias",
        )


def _table(name: str, plateaus: Mapping[Any, Plateau]) -> list[list[str]]:
    header = [name, "trainings", "left", "steps, quartiles", "repetition", "mean cosine"]
    return [header] + [
        [
            str(factor),
            str(len(plateau.length)),
            str(int(plateau.is_left.sum())),
            " ".join(f"{step:.0f}" for step in np.quantile(plateau.length, (0.25, 0.5, 0.75))),
            f"{plateau.repetition.mean():.2f}",
            f"{plateau.collapse.mean():.2f}",
        ]
        for factor, plateau in plateaus.items()
    ]


def _figure(name: str, plateaus: Mapping[Any, Plateau]) -> Figure:
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    for colour, (factor, plateau) in zip(_COLOURS, plateaus.items(), strict=False):
        steps = np.sort(plateau.length[plateau.is_left])
        share = np.arange(1, len(steps) + 1) / len(plateau.length)
        left.step(np.r_[0, steps], np.r_[0, share], where="post", color=colour, label=f"{name} = {factor}")
        right.scatter(plateau.repetition, plateau.collapse, s=8, color=colour, alpha=0.6, edgecolors="none")
    framed(left, xlabel="step", ylabel="share of trainings that have left the plateau", ylim=(0, 1))
    framed(right, xlabel="repetition on the plateau", ylabel="mean cosine of states on the plateau")
    left.legend(frameon=False, fontsize="small")
    return figure
