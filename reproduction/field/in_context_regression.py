"""In-context linear regression (docs/problems/in_context_regression.md): whether the loss falls in one drop or in
steps, its time course, and how this depends on the initialization.

Axes: L lane (a seed), P probe, D dimension of x, H head.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import median_row, share_row
from attnsweep.reproduction.trained import Trained, one_thread, queried, trained
from attnsweep.workloads.diagnostics.escape import predicted_escapes
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.judging import first_held
from attnsweep.workloads.engine.outcomes import AT_LEVEL, Evidence, at_level
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.field.in_context_regression import IN_CONTEXT_REGRESSION, data, loss, second_moment
from attnsweep.workloads.parameters import TrainingParameters, Value
from attnsweep.workloads.problem.data import Draw

Floats = NDArray[np.float64]

_SEEDS = range(64)
_DIMENSION, _N_CONTEXT, _RATE = 4, 31, 0.2
_DRAW = Draw(torch.tensor(0), "train", 0)
"""A source of random numbers for the function `data`, which asks for one although the variances do not depend on it."""
_SPACING = 1.03
"""The ratio between the steps of successive probes, where it makes them more than a step apart."""
_FIRST = 256
_MERGED_SIGMAS, _SEPARATE_SIGMAS = (1e-2, 1e-4, 1e-6), (1e-2, 1e-3)
_STAIRS_STEPS = 40_000
_AUTHORS_SIGMA, _AUTHORS_STEPS = 0.0048, 10_001
"""The authors' initialization, as the cube root of the product of the standard deviations of values, keys and queries;
and the authors' number of steps."""
_WHITE: Mapping[str, Value] = {
    **{"kq": "merged", "covariance": "white", "n_heads": 8, "init_sigma": 1e-4},
    **{"learning_rate": 0.02, "n_steps": 3_500, "stop_when_solved": False},
}
_OUTCOMES = """
select param_kq, param_n_heads, param_init_sigma, count(*) filter (outcome = 'solved'),
    count(*) filter (outcome = 'degenerate_zero'), count(*) filter (outcome = 'marginal'), count(*)
from trainings group by all order by all
"""


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Trains 64 seeds for each form of keys and queries (merged or separate), and compares these trainings and those of
    a finished sweep with Zhang et al. 2025.
    """
    with one_thread():
        white, stairs = _trained(_WHITE), _trained({"n_steps": _STAIRS_STEPS})
        published = _trained({"init_sigma": _AUTHORS_SIGMA, "n_steps": _AUTHORS_STEPS})
        rows = [
            *_time_course_rows(white),
            *_merged_rows(),
            *_stairs_rows(stairs),
            *_separate_rows(),
            *_published_rows(published),
        ]
    return Comparison(
        title="zhang-regression: in-context linear regression with linear attention, one drop or a staircase",
        source="Zhang, Singh, Latham & Saxe 2025, arXiv 2501.16265",
        rows=rows,
        tables=[("The sweep, 8 seeds and three attention scales a row", _table(sweep))],
        figures=save_figure(_figure(white, stairs), directory, "in_context_regression"),
        notes=[
            "The loss is the exact expectation; the paper trains on 5,000 sequences. Learning rates and starts are in "
            "units of the formula with 1/N: docs/problems/in_context_regression.md converts them.",
        ],
    )


def closed_form(result: Trained[Any]) -> Floats:
    """Returns the loss of in-context linear regression at the measured steps by an exact formula, (n_trainings,
    n_probes). The formula holds for attention with keys and queries merged into one matrix, and for inputs of equal
    variances.

    The seeds of the trainings must be 0, 1, 2, ...

    The inputs have D dimensions with variance l each. Head h has a matrix W_h and a value v_h. The part of the start
    that grows is s^2 = sum_h p_h^2 with p_h = (v_h + tr(W_h) / sqrt(D)) / 2. It makes the matrix of all heads m times
    the identity, with m = s^2 / sqrt(D). Gradient flow is then dm/dt = 4 sqrt(D) l^2 m (1 - m / m*), where m* is the
    optimum: a logistic curve.
    """
    parameters = result.parameters
    lanes = Lanes([Training(parameters, seed) for seed in range(len(result.outcome))], torch.device("cpu"))
    workload = IN_CONTEXT_REGRESSION()
    start = workload.initial(workload.build(parameters), lanes)
    trace_LH = start["key_query"].diagonal(dim1=-2, dim2=-1).sum(-1)
    growing_LH = (start["value"].flatten(1) + trace_LH / math.sqrt(_DIMENSION)) / 2
    first_L = (growing_LH.square().sum(1) / math.sqrt(_DIMENSION)).numpy()
    variance_D = data(_DRAW, _DIMENSION, "white")[0].double()
    optimum = float(variance_D[0] / second_moment(variance_D, _N_CONTEXT)[0])
    times_P = result.evidence.steps * parameters.learning_rate
    decay_P = np.exp(-4 * math.sqrt(_DIMENSION) * float(variance_D[0]) ** 2 * times_P)
    m_LP = torch.from_numpy(optimum / (1 + (optimum / first_L[:, None] - 1) * decay_P))
    return np.array([[float(loss(m * torch.eye(_DIMENSION), variance_D, _N_CONTEXT)) for m in m_P] for m_P in m_LP])


def _near(row: ComparedValue, published: float, within: float = 0.1) -> ComparedValue:
    return replace(row, agrees=abs(float(row.ours) / published - 1) <= within)


def _trained(values: Mapping[str, Value]) -> Trained[Any]:
    """Trains 64 seeds, and measures them at steps whose numbers grow by 3% each time."""
    values = {"learning_rate": _RATE, **values}
    n_steps = int(str(values["n_steps"]))
    probes = np.unique(np.geomspace(1, n_steps, int(math.log(n_steps, _SPACING))).round().astype(np.int64)).tolist()
    return trained(IN_CONTEXT_REGRESSION(), _SEEDS, values, probes=probes)


def _learned(result: Trained[Any]) -> Floats:
    first = first_held(IN_CONTEXT_REGRESSION(), result.parameters, result.evidence, result.result.last_probe)
    places = np.stack([first[f"direction_{n + 1}"] for n in range(_DIMENSION)], 1)
    steps = result.evidence.steps.astype(np.float64)
    return np.where(places >= 0, steps[np.maximum(places, 0)], np.inf)


def _visits_levels(evidence: Evidence) -> NDArray[np.bool_]:
    """Returns whether each training's loss comes within 1% of each level, (n_trainings, n_levels)."""
    loss_LP = evidence.metrics["eval_loss"]
    levels = [evidence.levels[f"directions_{n}"] for n in range(1, _DIMENSION)]
    return np.stack([at_level(loss_LP, level).any(1) for level in levels], 1)


def _time_course_rows(white: Trained[Any]) -> Iterator[ComparedValue]:
    evidence = white.evidence
    off_L = np.abs(evidence.metrics["eval_loss"] - closed_form(white)).max(1)
    row = median_row(
        "merged, white: largest distance of the loss from its closed form, of 1", off_L.tolist(), published="0"
    )
    yield replace(row, agrees=bool(off_L.max() < 0.02))


def _merged_rows() -> Iterator[ComparedValue]:
    values: dict[str, Value] = {"kq": "merged", "learning_rate": _RATE}
    escapes = _escapes(values, _MERGED_SIGMAS, 4_000)
    variance_D = data(_DRAW, _DIMENSION, "linear")[0].double().numpy()
    growth = 2 * float(np.linalg.norm(variance_D**2))
    per_decade = math.log(10) / math.log1p(_RATE * growth)
    for index, (high, low) in enumerate(pairwise(_MERGED_SIGMAS)):
        decades = math.log10(high / low)
        row = median_row(
            f"merged: steps more to leave the zero for a tenth of init_sigma, {low:g} to {high:g}",
            ((escapes[index + 1] - escapes[index]) / decades).tolist(),
            published=f"{per_decade:.1f} by ln(10) / ln(1 + rate * 2 |Lambda^2|)",
        )
        yield _near(row, per_decade)
    yield from _predicted_rows("merged", values, _MERGED_SIGMAS, escapes)
    for sigma in (_MERGED_SIGMAS[0], _MERGED_SIGMAS[-1]):
        drop = _trained({**values, "init_sigma": sigma, "n_steps": 4_000})
        learned_LD = _learned(drop)
        delay_L = learned_LD[:, -1] - learned_LD[:, 0]
        yield median_row(
            f"merged, {sigma:g}: steps between the first and the last direction", delay_L.tolist(), published=None
        )


def _separate_rows() -> Iterator[ComparedValue]:
    values: dict[str, Value] = {"kq": "separate", "learning_rate": _RATE}
    escapes = _escapes(values, _SEPARATE_SIGMAS, 40_000)
    row = median_row(
        "separate: times more steps to leave the zero for a tenth of init_sigma",
        (escapes[1] / escapes[0]).tolist(),
        published="10 by order 2",
    )
    yield _near(row, 10.0)
    yield from _predicted_rows("separate", values, _SEPARATE_SIGMAS, escapes)


def escape_times(
    workload: Workload[Any],
    parameters: TrainingParameters,
    sigmas: Sequence[float],
    seeds: Sequence[int],
    most_steps: int,
) -> Floats:
    """The step at which `eval_loss` is first 1% below that of the start, (n_sigmas, n_seeds), to 2%; infinite where it
    is not within `most_steps`. Those that have not left are trained again for twice as long."""
    trainings = [Training(replace(parameters, init_sigma=sigma), seed) for sigma in sigmas for seed in seeds]
    times, waiting, horizon = np.full(len(trainings), np.inf), np.arange(len(trainings)), min(_FIRST, most_steps)
    while waiting.size:
        probes = np.unique(np.geomspace(1, horizon, int(np.log(horizon) / np.log(1.02)) + 2).round().astype(np.int64))
        waiting_now = [trainings[lane] for lane in waiting]
        pack = [replace(each, parameters=replace(each.parameters, n_steps=horizon)) for each in waiting_now]
        evidence = Pack(workload, pack, extra_probe_steps=probes.tolist()).train_to_end().evidence
        loss = np.nan_to_num(evidence.metrics["eval_loss"], nan=np.inf)
        start = np.fmin(evidence.levels["zero"], loss[:, 0])
        below = loss < (start - AT_LEVEL * np.abs(start))[:, None]
        times[waiting] = np.where(below.any(1), evidence.steps[below.argmax(1)].astype(np.float64), np.inf)
        waiting = waiting[~np.isfinite(times[waiting])]
        if horizon == most_steps:
            break
        horizon = min(2 * horizon, most_steps)
    return times.reshape(len(sigmas), len(seeds))


def _escapes(values: Mapping[str, Value], sigmas: Sequence[float], most_steps: int) -> Floats:
    parameters = IN_CONTEXT_REGRESSION.parameters.resolve({**values, "n_steps": most_steps})
    return escape_times(IN_CONTEXT_REGRESSION(), parameters, sigmas, _SEEDS, most_steps)


def _predicted_rows(
    name: str, values: Mapping[str, Value], sigmas: Sequence[float], escapes: Floats
) -> Iterator[ComparedValue]:
    for sigma, escape_L in zip(sigmas, escapes, strict=True):
        parameters = IN_CONTEXT_REGRESSION.parameters.resolve({**values, "init_sigma": sigma})
        predicted_L = predicted_escapes(IN_CONTEXT_REGRESSION(), [Training(parameters, seed) for seed in _SEEDS])
        row = median_row(
            f"{name}, {sigma:g}: predicted_escape_step over the trained one",
            (predicted_L / escape_L).tolist(),
            published="1",
        )
        yield _near(row, 1.0)


def _stairs_rows(stairs: Trained[Any]) -> Iterator[ComparedValue]:
    visited_LD, learned_LD = _visits_levels(stairs.evidence), _learned(stairs)
    for n in range(_DIMENSION - 1):
        yield share_row(
            f"separate, 0.01: stands at the fixed point of {n + 1} directions",
            int(visited_LD[:, n].sum()),
            len(_SEEDS),
            published="all",
            agrees_within=(0.85, 1.0),
        )
    variance_D = data(_DRAW, _DIMENSION, "linear")[0].numpy()[::-1]
    for n in range(1, _DIMENSION):
        law = float(variance_D[0] / variance_D[n]) ** 2
        row = median_row(
            f"separate, 0.01: steps to {n + 1} directions over those to the first",
            (learned_LD[:, n] / learned_LD[:, 0]).tolist(),
            published=f"{law:.1f} by the squared ratio of variances",
        )
        yield _near(row, law, within=0.15)


def _published_rows(result: Trained[Any]) -> Iterator[ComparedValue]:
    learned_LD = _learned(result)
    for n in range(_DIMENSION):
        yield share_row(
            f"separate, {_AUTHORS_SIGMA:g}: {n + 1} or more directions learned in {_AUTHORS_STEPS:,} steps",
            int(np.isfinite(learned_LD[:, n]).sum()),
            len(_SEEDS),
        )


def _table(sweep: SweepDirectory) -> list[list[str]]:
    header = ["kq", "heads", "init_sigma", "solved", "at the zero", "at a fixed point between", "of"]
    return [header, *([str(cell) for cell in row] for row in queried(sweep, _OUTCOMES))]


def _figure(white: Trained[Any], stairs: Trained[Any]) -> Figure:
    figure = Figure(figsize=(8, 3), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, result, name in zip(panels, (white, stairs), ("merged, white", "separate"), strict=True):
        panel.plot(result.evidence.steps, result.evidence.metrics["eval_loss"][:8].T, color="#0072B2", lw=0.8)
        framed(panel, xlabel="step", ylabel="loss", title=name, xscale="log")
    panels[0].plot(white.evidence.steps, closed_form(white)[:8].T, "k--", lw=0.6)
    for n in range(1, _DIMENSION):
        panels[1].axhline(float(stairs.evidence.levels[f"directions_{n}"][0]), color="0.6", lw=0.6)
    return figure
