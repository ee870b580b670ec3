"""Study of docs/mission.md for category pairs: which parameters decide whether a training ends at a zero of the
gradient (sweep `mission_pairs`).

Axes: T trial.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.figures import house_style
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.phase.diagram import fit_phase_diagram
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, TrialCounts
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooled_rate
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import bins, border_row, estimate_row, rate_row, rate_text, value_row
from attnsweep.reproduction.studies.borders import BorderModel, fit_border, half_point, pair_table, products
from attnsweep.reproduction.studies.precision import UNIT_ROUNDOFF
from attnsweep.reproduction.trained import swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine.lbfgs import TOLERANCE_CHANGE

Floats = NDArray[np.float64]

DTYPES = ("float32", "float64")
SCALES = ("one", "inv_sqrt_d", "log_n_inv_sqrt_d", "learned")
VARIANTS = ("solution_1", "solution_3")
_N_FACTORS = 3
"""The number of matrices v, k and q: with the skip connection, the way out of the gradient's zero is along their
product."""
_N_POSITIONS = 20
"""The number of positions. It is also the d of the attention scale in solutions 1 and 3, whose logits read
positions."""
_TYPICAL_EPS = 1e-4
_PER_DECADE = 2
_ZERO = Ending("degenerate_zero")
_TRIALS = """
select any_value(param_init_sigma), any_value(param_layer_norm_eps), any_value(param_attention_scale),
    any_value(param_dtype), any_value(param_variant), count(*), count(*) filter (outcome = 'degenerate_zero'),
    count(*) filter (outcome = 'solved'), median(final_loss) filter (outcome = 'degenerate_zero')
from trainings where outcome != 'failed' group by trial order by trial
"""


@dataclass(frozen=True)
class Trials:
    """The trials of the sweep `mission_pairs`: an array (n_trials,) for each quantity, such as the number of trainings
    stuck at a zero of the gradient.

    `loss` is the median over the trainings of a trial that end at the zero, or NaN.
    """

    sigma: Floats
    eps: Floats
    scale: NDArray[np.str_]
    dtype: NDArray[np.str_]
    variant: NDArray[np.str_]
    n: Floats
    n_zero: Floats
    n_solved: Floats
    loss: Floats

    @classmethod
    def read(cls, sweep: SweepDirectory, at_most: int | None = None) -> "Trials":
        """Reads from a ledger the trials in the order in which they were drawn, at most the first `at_most` of them."""
        with SweepData.open(sweep.place).reading() as connection:
            columns = list(zip(*connection.execute(_TRIALS).fetchall(), strict=True))
        texts = (2, 3, 4)
        return cls(
            *(np.array(column[:at_most], str if index in texts else float) for index, column in enumerate(columns))
        )

    def where(self, chosen: NDArray[np.bool_]) -> "Trials":
        """Selects the trials for which the mask (n_trials,) is true."""
        return Trials(*(getattr(self, column.name)[chosen] for column in fields(self)))

    @property
    def at_zero(self) -> Rate:
        """The rate of trainings, over all trials, that end stuck at a point where the gradient is 0."""
        return share_of(self.n, self.n_zero)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Tests in a finished sweep which parameters change the border: the `init_sigma` at which half of the trainings end
    at a zero of the gradient. Also draws phase diagrams."""
    trials = Trials.read(sweep)
    parts, model = _model(trials)
    figures = [
        path
        for dtype in DTYPES
        for path in save_figure(_diagram(trials, trials.dtype == dtype), directory, f"mission_pairs_{dtype}")
    ]
    return Comparison(
        title="Initialization, LayerNorm's epsilon, attention's scale and precision at once: who ends at the zero?",
        source="attnsweep, docs/mission.md",
        rows=[
            rate_row("degenerate_zero", trials.at_zero),
            rate_row("solved", share_of(trials.n, trials.n_solved)),
            *(() if model is None else _moves(trials, model)),
            one_border(trials),
            *_borders(trials),
        ],
        tables=[("By initialization", _by_sigma(trials)), ("What moves the border together", _pairs(trials, parts))],
        figures=figures,
        notes=[
            "Border: the init_sigma at which half of the trainings end at the dead-attention zero. A factor is what "
            "multiplies it, in a logistic regression on all parameters (reproduction/studies/borders.py).",
            "Derived: the border of L-BFGS where scale^2 sigma^4 is as small as max(u L, 1e-9) of the loss L.",
        ],
    )


def derived_factors(loss: float) -> Mapping[str, float]:
    """Returns a factor for each of several settings, such as float32: by this factor the setting should in theory
    multiply the init_sigma at which half of the trainings are stuck.

    Float32 is compared with float64, and each attention scale with scale 1.

    The factor of `layer_norm_eps` is 1: it should have no effect.

    The factors follow if attention's gradient has the size (attention scale) * init_sigma^2 and L-BFGS stops by
    comparing losses.
    """
    exponent = 1 / (2 * (_N_FACTORS - 1))
    visible = {dtype: max(UNIT_ROUNDOFF[dtype] * loss, TOLERANCE_CHANGE) for dtype in DTYPES}
    root = float(np.sqrt(_N_POSITIONS))
    scales = {"inv_sqrt_d": 1 / root, "log_n_inv_sqrt_d": float(np.log(_N_POSITIONS)) / root, "learned": 1 / root}
    by_scale = {f"scale {name}": value ** (-2 * exponent) for name, value in scales.items()}
    return {"float32": (visible["float32"] / visible["float64"]) ** exponent, "layer_norm_eps": 1.0, **by_scale}


def at_scale_one(trials: Trials) -> Floats:
    """Returns for each trial, (n_trials,), the init_sigma that by theory would have the same effect if the attention
    logits were multiplied by 1, instead of by the trial's attention scale.
    """
    factors = derived_factors(float(np.nanmedian(trials.loss)))
    return np.asarray(trials.sigma / np.array([factors.get(f"scale {scale}", 1.0) for scale in trials.scale]))


def moved(trials: Trials) -> Floats:
    """Returns for each trial, (n_trials,), the init_sigma that by theory would have the same effect if training used
    float64 and multiplied the attention logits by 1, instead of the trial's own precision and attention scale.

    With this init_sigma, trials of all precisions and scales share one border between stuck and free trainings.
    """
    float32 = derived_factors(float(np.nanmedian(trials.loss)))["float32"]
    return np.asarray(at_scale_one(trials) / np.where(trials.dtype == "float32", float32, 1.0))


def one_border(trials: Trials) -> ComparedValue:
    """Returns a row with the init_sigma at which half of all trainings would be stuck if all were trained in float64
    with attention logits scaled by 1. For this, theory converts the init_sigma of each trial.
    """
    name = "border in float64, scale one, of all trials moved there by the derived factors"
    return border(name, trials, moved(trials))


def _model(trials: Trials) -> tuple[dict[str, Floats], BorderModel | None]:
    """Fits a regression model that tells, for given parameters, at which init_sigma half of the trainings are stuck.

    Returns the regression's columns by parameter, each (n_trials, n_columns), and the model; `None` for the model if
    the trials do not show how init_sigma acts.
    """
    columns = {
        "dtype": [trials.dtype == "float32"],
        "layer_norm_eps": [np.log10(trials.eps / _TYPICAL_EPS)],
        "attention_scale": [trials.scale == name for name in SCALES[1:]],
        "variant": [trials.variant == "solution_3"],
    }
    parts = {name: np.column_stack(of_parameter).astype(np.float64) for name, of_parameter in columns.items()}
    return parts, _fitted(trials, np.column_stack(list(parts.values())))


def _fitted(trials: Trials, terms: Floats) -> BorderModel | None:
    try:
        return fit_border(trials.sigma, terms, trials.n, trials.n_zero)
    except ValueError:
        return None


def _moves(trials: Trials, model: BorderModel) -> Iterator[ComparedValue]:
    derived = derived_factors(float(np.nanmedian(trials.loss)))
    names = ("float32", "layer_norm_eps", *(f"scale {name}" for name in SCALES[1:]), "solution_3")
    value, low, high = model.border(np.zeros(len(names)))
    yield estimate_row("border in float64, scale one, solution_1, layer_norm_eps 1e-4", value, low, high)
    for term, name in enumerate(names):
        value, low, high = model.factor(term)
        expected = derived.get(name)
        published, agrees = (None, None) if expected is None else (f"{expected:.2f} (derived)", low <= expected <= high)
        title = f"  times, with {name}" + (" ten times as large" if name == "layer_norm_eps" else "")
        yield ComparedValue(name=title, published=published, ours=value, low=low, high=high, agrees=agrees)


def _borders(trials: Trials) -> Iterator[ComparedValue]:
    """Yields rows with the init_sigma at which half of the trainings are stuck: one for each pair of attention scale
    and floating-point type, and one for each pair of attention scale and model variant.

    Each row is computed from the pair's trials alone, without regression.
    """
    for names, column in ((DTYPES, trials.dtype), (VARIANTS, trials.variant)):
        for first, scale in itertools.product(names, SCALES):
            inside = trials.where((column == first) & (trials.scale == scale))
            yield border(f"border, {first}, scale {scale}", inside, inside.sigma)


def border(name: str, trials: Trials, sigma: Floats) -> ComparedValue:
    """Returns, as a row for the study's table, the init_sigma at which half of the trainings end where the gradient is
    zero, with its interval."""
    counts = zip(trials.n, trials.n_zero, strict=True)
    holds = np.concatenate([np.arange(size) < count for size, count in counts]).astype(np.float64)
    return border_row(name, *half_point(np.repeat(np.log(sigma), trials.n.astype(int)), holds, of_trials=True))


def _by_sigma(trials: Trials) -> list[list[str]]:
    lines = [["init_sigma", "trainings", *(f"degenerate_zero, {dtype}" for dtype in DTYPES), "solved"]]
    for ends, chosen in bins(trials.sigma, _PER_DECADE):
        inside = trials.where(chosen)
        rates = [inside.where(inside.dtype == dtype).at_zero for dtype in DTYPES]
        rates.append(share_of(inside.n, inside.n_solved))
        lines.append([ends, f"{inside.n.sum():g}", *map(rate_text, rates)])
    return lines


def _pairs(trials: Trials, parts: Mapping[str, Floats]) -> list[list[str]]:
    """Tests for each pair of parameters whether the effect of one on the border (the init_sigma at which half of the
    trainings are stuck) depends on the other.
    """
    main = np.column_stack(list(parts.values()))
    pairs = list(itertools.combinations(parts, 2))
    p_values: list[float | None] = []
    for pair in pairs:
        joint = products(parts, pair)
        model = _fitted(trials, np.column_stack([main, joint]))
        terms = range(main.shape[1], main.shape[1] + joint.shape[1])
        p_values.append(None if model is None else model.p_value(terms))
    return pair_table(pairs, p_values)


def share_of(n: NDArray[Any], k: NDArray[Any]) -> Rate:
    """Returns the rate of trainings that have some property, with its interval. Of the n trainings of each trial, k
    have it.
    """
    return pooled_rate(list(zip(n.astype(int).tolist(), k.astype(int).tolist(), strict=True)))


@house_style()
def _diagram(trials: Trials, chosen: NDArray[np.bool_]) -> Figure:
    """Draws a phase diagram: how often trainings end at a zero of the gradient, by init_sigma and layer_norm_eps."""
    shown = trials.where(chosen)
    counts = TrialCounts(shown.sigma, shown.eps, shown.n, shown.n_zero)
    x, y = (
        PlaneAxis(name, True, float(values.min()), float(values.max()))
        for name, values in (("init_sigma", counts.x), ("layer_norm_eps", counts.y))
    )
    return fit_phase_diagram(x, y, counts, counts.n, _ZERO).plot_model()


N_TRIALS = 64
"""The number of trials of each sampler; those of the random sampler are the first of `mission_pairs`."""
_N_LAST = 16
"""The number of last trials, which show what the samplers have learned: in these sweeps TPE draws its first 52 at
random."""
_NEAR = 2.0
"""A trial counts as near the border if its init_sigma differs by at most this factor from the value at which half of
the trainings are stuck."""


def reproduce_samplers(directory: Path, console: Console) -> Comparison:
    """Runs a sweep of full models (attention, LayerNorm and a feed-forward part) with each of three samplers, which
    choose the parameters of the trials: 64 trials x 4 seeds each.
    """
    drawn = load_sweep("mission_pairs").but(trials=N_TRIALS)
    sweeps = [swept("mission_pairs", directory, console, "auto", changed=drawn)]
    sweeps += [swept(f"mission_pairs_{sampler}", directory, console, "auto") for sampler in ("tpe", "boundary")]
    return Comparison(
        title="Initialization, epsilon, attention's scale and precision: what do TPE and boundary find?",
        source="attnsweep, docs/mission.md",
        rows=[row for sweep in sweeps for row in compare_sampler(sweep, directory).rows],
        notes=[
            f"The first {N_TRIALS} trials of each, with four trainings. Near the border: within a factor of {_NEAR:g}, "
            "both moved to float64 and scale one by the derived factors of mission-pairs."
        ],
    )


def compare_sampler(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports the outcomes of the first 64 trials of a finished sweep over the search space of `mission_pairs`, to
    compare the sweep's sampler with other samplers.
    """
    del directory
    sampler = sweep.spec.sampler
    rows = [replace(row, name=f"{sampler}: {row.name}") for row in rows_of(Trials.read(sweep, N_TRIALS))]
    return Comparison(title=sampler, source="attnsweep, docs/mission.md", rows=rows)


def rows_of(trials: Trials) -> list[ComparedValue]:
    """Returns rows that count trials: those in which no training is stuck, those in which all are solved, and those
    whose init_sigma is near the border at which half of the trainings get stuck. Each row counts among all trials and
    among the last `_N_LAST` drawn.

    Further rows give the border and, if it is found, the median distance of these last trials from it.
    """
    border = one_border(trials)
    counts = {
        "no training ends at the zero": trials.n_zero == 0,
        "all trainings are solved": trials.n_solved == trials.n,
    }
    latest = slice(-_N_LAST, None)
    distance = None if isinstance(border.ours, str) else np.abs(np.log(moved(trials) / border.ours))
    if distance is not None:
        counts["near the border"] = distance < np.log(_NEAR)
    rows = [
        value_row(
            f"trials of {len(trials.n)}, and of the last {_N_LAST}: {name}", f"{holds.sum()}, {holds[latest].sum()}"
        )
        for name, holds in counts.items()
    ]
    if distance is not None:
        name = f"median distance of the last {_N_LAST} from the border, decades"
        rows.append(value_row(name, float(np.median(distance[latest])) / np.log(10)))
    return [*rows, border]
