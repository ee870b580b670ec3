"""Study of docs/mission.md for translators: which parameters their loss and the roles of their attention heads depend
on (sweep `mission_random`).

Axes: T trial.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.figures import house_style
from attnsweep.orchestrator.analysis.onset import Onset, OnsetCurve
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import bins, mean_interval, rate_row, value_row
from attnsweep.reproduction.studies.borders import pair_table, products

Floats = NDArray[np.float64]

ROLES = (("rare_token", 0), ("positional", 0), ("positional", 1), ("syntactic", 0), ("syntactic", 1))
"""The head roles that emerge in some translator of this sweep, each with its layer: 0 is the encoder's self-attention,
1 the decoder's."""
LAYERS = ("encoder", "decoder")
_CENTRE = 0.03
"""The init_sigma at which the powers of log init_sigma are centred; the tests of interactions depend on this choice."""
_BINS_PER_DECADE = 2
_LEVELS: Mapping[str, tuple[str, ...]] = {
    "attention_scale": ("one", "inv_sqrt_d", "log_n_inv_sqrt_d"),
    "window": ("all", "0", "1", "2", "4"),
    "num_pos": ("0", "1", "2", "4"),
}
"""The values of the categorical parameters. The first value of each is the one that others are compared with."""
_TRIALS = """
select any_value(param_init_sigma), any_value(param_layer_norm_eps), any_value(param_attention_scale),
    coalesce(any_value(param_window)::varchar, 'all'), any_value(param_num_pos)::varchar,
    avg(ln(eval_loss - level_grammar)), avg(eval_loss)
from trainings where outcome not in ('failed', 'diverged') group by trial order by trial
"""


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Tests how the losses of a finished sweep's translators, and the roles of their attention heads, depend on the
    parameters. Draws the losses.
    """
    data = SweepData.open(sweep.place)
    with data.reading() as connection:
        columns = [np.array(column) for column in zip(*connection.execute(_TRIALS).fetchall(), strict=True)]
    sigma, eps, *texts, log_excess, loss = columns
    parts = _parts(sigma, eps, dict(zip(_LEVELS, texts, strict=True)))
    onsets = {name: _onsets(data, name) for name in ("num_pos", "window")}
    return Comparison(
        title="Initialization, epsilon, attention's scale and structure at once: which translators are better?",
        source="attnsweep, docs/mission.md",
        rows=[
            rate_row("stuck", data.stuck_rates().overall),
            *_factors(parts, log_excess),
            *(row for role, layer in (("rare_token", 0), ("syntactic", 1)) for row in _hazards(data, role, layer)),
            *_threshold(parts, np.maximum(np.log10(np.sqrt(eps) / sigma), 0.0), log_excess),
        ],
        tables=[
            ("Held-out nats per token by initialization, means over trials", _by_sigma(sigma, loss)),
            ("Whether two parameters act on the excess together otherwise than each alone", _pairs(parts, log_excess)),
            *((f"Share in which a role has emerged, by {name}", _emerged(roles)) for name, roles in onsets.items()),
        ],
        figures=save_figure(_figure(sigma, eps, texts[1], loss), directory, "mission_translators"),
        notes=[
            "Excess: held-out nats per token above the grammar's own. Factors are those of a regression of its "
            "logarithm on all parameters (a trial is one observation, HC3), with a cubic of log init_sigma.",
            "A role has emerged where it holds at two probes in a row; the share is Kaplan-Meier's at the end.",
        ],
    )


def _parts(sigma: Floats, eps: Floats, texts: Mapping[str, NDArray[np.str_]]) -> dict[str, Floats]:
    """Returns the columns by which each swept parameter enters a regression of the logarithm of the excess loss,
    (n_trials, n_columns) by the parameter's name.
    """
    decades = np.log10(sigma / _CENTRE)
    parts = {"init_sigma": np.column_stack([decades, decades**2, decades**3]), "layer_norm_eps": np.log10(eps)[:, None]}
    for name, (_, *levels) in _LEVELS.items():
        parts[name] = np.column_stack([texts[name] == level for level in levels]).astype(np.float64)
    return parts


def _fitted(terms: Floats, log_excess: Floats) -> Any:
    from statsmodels.regression.linear_model import OLS

    return OLS(log_excess, np.column_stack([np.ones(len(terms)), terms])).fit(cov_type="HC3", use_t=True)


def _factors(parts: Mapping[str, Floats], log_excess: Floats) -> Iterator[ComparedValue]:
    fitted = _fitted(np.column_stack(list(parts.values())), log_excess)
    names = [f"init_sigma^{power}" for power in (1, 2, 3)] + ["layer_norm_eps ten times as large"]
    names += [f"{name} {level} instead of {levels[0]}" for name, levels in _LEVELS.items() for level in levels[1:]]
    yield value_row("variance of the log excess that is explained", fitted.rsquared)
    for index, name in enumerate(names):
        if not name.startswith("init_sigma"):
            yield _factor(f"excess, times, with {name}", fitted, index)


def _threshold(parts: Mapping[str, Floats], below: Floats, log_excess: Floats) -> Iterator[ComparedValue]:
    """Tests whether LayerNorm's epsilon affects the loss where init_sigma is below sqrt(epsilon), as theory expects,
    and whether it does so elsewhere.

    Args:
        parts: The parameters.
        below: How many decades init_sigma lies below the root of epsilon, (n_trials,); 0 above it.
        log_excess: The logarithm of each trial's loss above the achievable one, (n_trials,).
    """
    others = [columns for name, columns in parts.items() if name != "layer_norm_eps"]
    fitted = _fitted(np.column_stack([below, parts["layer_norm_eps"], *others]), log_excess)
    yield _factor("excess, times, per decade of init_sigma below the root of layer_norm_eps", fitted, 0)
    yield _factor("  and, apart from that, with layer_norm_eps ten times as large", fitted, 1)


def _factor(name: str, fitted: Any, term: int) -> ComparedValue:
    """Returns a table row: the factor by which the excess loss (above the lowest achievable loss) changes if one term
    of the given regression, `fitted`, grows by 1.

    The factor is the exponential of the term's coefficient.
    """
    low, high = fitted.conf_int()[1 + term]
    ours, low, high = (float(np.exp(exponent)) for exponent in (fitted.params[1 + term], low, high))
    return ComparedValue(name=name, published=None, ours=ours, low=low, high=high)


def _by_sigma(sigma: Floats, loss: Floats) -> list[list[str]]:
    lines = [["init_sigma", "trials", "nats"]]
    for ends, chosen in bins(sigma, _BINS_PER_DECADE):
        mean, low, high = mean_interval(loss[chosen].tolist())
        lines.append([ends, str(int(chosen.sum())), f"{mean:.2f} [{low:.2f}, {high:.2f}]"])
    return lines


def _pairs(parts: Mapping[str, Floats], log_excess: Floats) -> list[list[str]]:
    """Tests for each pair of parameters, by regression of the loss, whether the effect of one depends on the other.

    The products of terms that test this use only the linear and the square term of init_sigma.
    """
    main = np.column_stack(list(parts.values()))
    slopes = {**parts, "init_sigma": parts["init_sigma"][:, :2]}
    pairs = [pair for pair in itertools.combinations(parts, 2) if pair != ("window", "num_pos")]
    p_values: list[float | None] = []
    for pair in pairs:
        joint = products(slopes, pair)
        fitted = _fitted(np.column_stack([main, joint]), log_excess)
        chosen = np.eye(len(fitted.params))[-joint.shape[1] :]
        p_values.append(float(fitted.wald_test(chosen, use_f=True, scalar=True).pvalue))
    return pair_table(pairs, p_values)


@house_style()
def _figure(sigma: Floats, eps: Floats, window: NDArray[np.str_], loss: Floats) -> Figure:
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    panel = figure.subplots()
    limits = Normalize(*np.log10([eps.min(), eps.max()]))
    for name, marker, chosen in (("window 0", "s", window == "0"), ("wider, or all tokens", "o", window != "0")):
        look: dict[str, Any] = {"c": np.log10(eps[chosen]), "norm": limits, "marker": marker, "edgecolors": "black"}
        panel.scatter(sigma[chosen], loss[chosen], s=18, linewidths=0.5, label=name, **look)
    figure.colorbar(ScalarMappable(limits), ax=panel, label="layer-norm $\\log_{10}\\epsilon$")
    panel.set(xscale="log", yscale="log", xlabel="initialization $\\sigma$", ylabel="held-out nats per token")
    panel.legend()
    return figure


def _onsets(data: SweepData, parameter: str) -> dict[str, Onset]:
    return {f"{role}, {LAYERS[layer]}": data.emergence(role, by=parameter, layer=layer) for role, layer in ROLES}


def _hazards(data: SweepData, role: str, layer: int) -> Iterator[ComparedValue]:
    """Reports how much faster attention heads take the given role if each query may see `num_pos` more keys in addition
    to those in its window, as ratios of the chance per step (hazard ratios).

    Heads are only compared with heads whose windows have equal size.
    """
    ratios = data.emergence(role, by=["num_pos", "window"], layer=layer).hazard_ratios().ratios
    for hazard in ratios:
        if hazard.name == "num_pos" and hazard.ratio is not None and hazard.label != hazard.reference:
            name = f"{role}, {LAYERS[layer]}: hazard ratio, num_pos {hazard.label} relative to {hazard.reference}"
            yield ComparedValue(name=name, published=None, ours=hazard.ratio, low=hazard.low, high=hazard.high)


def _emerged(onsets: Mapping[str, Onset]) -> list[list[str]]:
    """Returns a table of the share of trainings in which an attention head has taken a role: a line for each value of
    one parameter, a column for each role.
    """
    [first, *_] = onsets.values()
    lines = [[first.by, "trainings", *onsets]]
    for index, curve in enumerate(first.curves):
        shares = (_last(onset.curves[index]) for onset in onsets.values())
        lines.append([f"{first.by} {curve.label}", str(curve.n_trainings), *shares])
    return lines


def _last(curve: OnsetCurve) -> str:
    end = curve.curve[-1]
    return f"{end.share:.2f} [{end.low:.2f}, {end.high:.2f}]"
