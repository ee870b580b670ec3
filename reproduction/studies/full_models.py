"""The figures and tables of docs/zeros.md on full models (attention, LayerNorm and a feed-forward part), from the sweep
`stuck_full`. Axes: L training, P probe.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate
from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import Comparison, save_figure
from attnsweep.reproduction.rows import rate_text, share_row
from attnsweep.reproduction.trained import swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs import outcomes as full_outcomes
from attnsweep.workloads.category_pairs.certificates import split
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.diagnostics.kicks import KICKS, MOST_TELLING, kick_and_train
from attnsweep.workloads.engine import outcomes
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES


class Judged:
    """The trainings of a ledger with their metrics, from which their outcomes can be decided again with other
    thresholds.

    Attributes:
        rows: The rows of the table `trainings`.
        metrics: The metrics by name, (n_trainings, n_probes); NaN after a training had ended.
    """

    def __init__(self, sweep: SweepDirectory) -> None:
        ledger = Ledger(sweep.place)
        trainings = ledger.trainings().filter(pa.compute.field("outcome") != "failed")
        self.rows: list[dict[str, Any]] = trainings.to_pylist()
        curves = ledger.curves(["training_id", "step", "metric", "value"])
        self.steps, probe = np.unique(curves["step"].to_numpy(), return_inverse=True)
        lane_of = {row["training_id"]: lane for lane, row in enumerate(self.rows)}
        lane = np.array([lane_of.get(training, -1) for training in _plain(curves["training_id"]).to_pylist()])
        metric = _plain(curves["metric"]).to_numpy(zero_copy_only=False)
        value = curves["value"].to_numpy()
        self.metrics: dict[str, NDArray[np.float64]] = {}
        for name in np.unique(metric):
            table = np.full((len(self.rows), self.steps.size), np.nan)
            chosen = (metric == name) & (lane >= 0)
            table[lane[chosen], probe[chosen]] = value[chosen]
            self.metrics[str(name)] = table
        finite = np.isfinite(self.metrics["eval_loss"])
        self._last = finite.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1)

    def column(self, name: str) -> NDArray[Any]:
        """Returns a column of the ledger's table `trainings` as Python objects, (n_trainings,)."""
        values = np.empty(len(self.rows), dtype=object)
        values[:] = [row[name] for row in self.rows]
        return values

    def groups(self, column: str) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
        """Yields the distinct values of a column in order, null last, each with a mask (n_trainings,) of the trainings
        that have the value."""
        values = self.column(column)
        for value in sorted(set(values), key=lambda item: (item is None, str(type(item)), item or 0)):
            yield value, np.array([item == value for item in values])

    def at_end(self, metric: str) -> NDArray[np.float64]:
        """Returns the value of a metric at the last measured step of each training, (n_trainings,)."""
        values: NDArray[np.float64] = self.metrics[metric][np.arange(len(self.rows)), self._last]
        return values

    @property
    def gamma(self) -> NDArray[np.float64]:
        """The relative gradient of each training when it was last measured, (n_trainings,): the norm of the gradient
        times the norm of all weights, divided by the loss."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.at_end("train_grad_norm") * self.at_end("param_norm") / self.at_end("loss")

    def outcome(self, solved_factor: float = 1.0) -> NDArray[np.str_]:
        """Decides the outcome of each training anew from its recorded numbers, by the present thresholds.

        Args:
            solved_factor: Multiplies the loss below which a training is solved.
        """
        outcome = np.empty(len(self.rows), dtype="<U15")
        activations = self.column("param_attention_activation")
        for activation in set(activations):
            chosen = np.flatnonzero(activations == activation)
            outcome[chosen] = self._outcome(chosen, solved_factor)
        return np.where([step is not None for step in self.column("diverged_step")], "diverged", outcome)

    def _outcome(self, chosen: NDArray[np.int64], solved_factor: float) -> NDArray[np.str_]:
        """Decides the outcomes of trainings that agree in all parameters on which the outcome depends."""
        levels = {name: self.column(f"level_{name}")[chosen].astype(float) for name in ("zero", "mean", "cur")}
        levels["solved"] = solved_factor * self.column("loss_level")[chosen].astype(float)
        metrics = {name: table[chosen] for name, table in self.metrics.items()}
        evidence = Evidence(steps=self.steps.astype(np.int64), metrics=metrics, levels=levels)
        with np.errstate(invalid="ignore"):
            verdicts = judged(CategoryPairs(), parameters_of(self.rows[chosen[0]]), evidence)
        outcome: NDArray[np.str_] = verdicts.outcome[np.arange(chosen.size), self._last[chosen]]
        return outcome


def parameters_of(row: dict[str, Any]) -> CategoryPairsParameters:
    return CategoryPairsParameters.recorded(row)


@contextmanager
def cut_off(module: ModuleType, name: str, factor: float) -> Iterator[None]:
    """Within the block, one of the thresholds by which outcomes are decided is multiplied by a factor."""
    original = getattr(module, name)
    setattr(module, name, factor * original)
    try:
        yield
    finally:
        setattr(module, name, original)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().dictionary_decode()


CUT_OFFS: list[tuple[ModuleType, str]] = [
    (outcomes, "STATIONARY_GAMMA"),
    (full_outcomes, "DEAD_PRODUCT"),
    (full_outcomes, "DEAD_ABLATION"),
    (full_outcomes, "MATCHES"),
    (full_outcomes, "OVERFIT_GAP"),
    (full_outcomes, "OVERFIT_TEST"),
    (full_outcomes, "OVERFIT_TRAIN"),
    (outcomes, "DIVERGED_FACTOR"),
    (outcomes, "MOVING_SHARE"),
]
"""The thresholds that decide the outcomes of the full models, and the modules that define them."""
N_KICKED = 32
"""The number of trainings at zeros of the gradient that are kicked (continued with noise added); a quarter as many on
plateaus are."""
_SOURCE = "attnsweep, docs/zeros.md"
_GROUPED_BY = (
    "variant",
    "param_flavour",
    "param_attention_activation",
    "param_skip",
    "param_attention_scale",
    "param_init_sigma",
)
_LABELS = ("solved", "degenerate_zero", "marginal", "overfit")

Table = list[list[str]]


def reproduce_kicks(directory: Path, console: Console) -> Comparison:
    """Trains the models of `stuck_full` in float64 and kicks some stuck ones, to see whether they are still stuck.

    In float32 some trainings are stuck only by rounding: the descent after a kick, in float64, would free them anyway.
    """
    in_float64 = load_sweep("stuck_full").fix({"dtype": "float64"})
    sweep = swept("stuck_full", directory / "float64", console, changed=in_float64)
    console.print(f"training {N_KICKED} zeros and {N_KICKED // 4} plateaus again, and kicking them")
    return compare_kicks(sweep, N_KICKED)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports the rate of each outcome in a finished sweep, and draws the outcomes."""
    judged = Judged(sweep)
    recorded = judged.column("outcome").astype(str)
    n_alike = int((recorded == judged.outcome()).sum())
    return Comparison(
        title="Full models: where 2,048 trainings get stuck",
        source=_SOURCE,
        rows=[
            share_row("trainings judged as recorded", n_alike, recorded.size),
            *(share_row(f"outcome {name}", int((recorded == name).sum()), recorded.size) for name in COLOURS),
        ],
        tables=[
            ("Rates", _rates(judged, recorded)),
            ("Quantiles 5 / 50 / 95% of the quantities with a cut-off, by outcome", _clusters(judged, recorded)),
            ("Share of each outcome with a cut-off halved / as it is / doubled", _sensitivity(judged)),
            ("Certificates", _certificates(judged)),
        ],
        figures=[
            *save_figure(clusters_figure(judged, recorded), directory, "full_models_scatter"),
            *save_figure(by_sigma_figure(judged, recorded), directory, "full_models_by_sigma"),
        ],
        notes=[
            "Intervals in the table of rates count the trainings of one trial as dependent; those of the rows do not.",
            "Outcomes under other cut-offs are judged again from the ledger's curves.",
        ],
    )


def compare_kicks(sweep: SweepDirectory, n_zeros: int) -> Comparison:
    """Adds noise to the weights of stuck trainings of a finished sweep, and counts those that it frees."""
    # Training ids say nothing about the trainings, so the trainings with the first ids are a random sample.
    rows = sorted(Judged(sweep).rows, key=lambda row: str(row["training_id"]))
    zeros = [row for row in rows if row["outcome"] == "degenerate_zero"]
    still = [row for row in rows if row["outcome"] == "plateau" and row["outcome_detail"] is None]
    compared = []
    for name, chosen, n in (("zeros", zeros, n_zeros), ("plateaus that stood still", still, n_zeros // 4)):
        if chosen[:n]:
            smallest = _smallest_kicks(sweep, chosen[:n])
            compared += [
                share_row(f"{name} freed by a kick of {size:g} or less", int((smallest <= size).sum()), smallest.size)
                for size in KICKS
            ]
    return Comparison(
        title="Full models, kicked where they ended",
        source=_SOURCE,
        rows=compared,
        notes=[
            "The size of a kick is relative to the weights, tensor by tensor; descent follows in float64. Freed: the "
            "loss falls by 5%.",
            f"A kick of more than {MOST_TELLING:g} is a new start and proves nothing (docs/notes/zeros_tests.md).",
        ],
    )


def _smallest_kicks(sweep: SweepDirectory, rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Adds ever larger noise to the weights of each training and trains on."""
    smallest = []
    for _, group in itertools.groupby(sorted(rows, key=_static_key), key=_static_key):
        lanes, state = ended_lanes(sweep, [row["training_id"] for row in group])
        in_float64 = {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
        workload = CategoryPairs()
        objective, parameters = split(workload.build(lanes.shared).double(), workload.loss, in_float64)
        smallest.append(kick_and_train(objective, parameters, lanes.streams).smallest.numpy())
    return np.concatenate(smallest)


def _static_key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in parameters_of(row).static_key())


def _rates(judged: Judged, outcome: NDArray[np.str_]) -> Table:
    everywhere = np.ones(outcome.size, dtype=bool)
    lines = [
        ["where", "trainings", "solved", "degenerate_zero", "marginal", "stuck"],
        _rate_line("all", judged, outcome, everywhere),
    ]
    is_combined = judged.column("variant") == "combined"
    for column in _GROUPED_BY:
        considered = is_combined if column == "param_flavour" else everywhere
        name = column.removeprefix("param_")
        lines += [
            _rate_line(f"{name} = {value}", judged, outcome, considered & chosen)
            for value, chosen in judged.groups(column)
        ]
    dtypes = list(judged.groups("param_dtype"))
    if len(dtypes) > 1:
        lines += [
            _rate_line(f"dtype = {dtype}, init_sigma = {sigma}", judged, outcome, has_dtype & has_sigma)
            for dtype, has_dtype in dtypes
            for sigma, has_sigma in judged.groups("param_init_sigma")
            if (has_dtype & has_sigma).any()
        ]
    exponent = np.floor(np.log10(judged.column("param_layer_norm_eps").astype(float)))
    decades = {f"layer_norm_eps 1e{low}..1e{low + 1}": exponent == low for low in range(-7, -1)}
    return [*lines, *(_rate_line(name, judged, outcome, chosen) for name, chosen in decades.items())]


def _rate_line(name: str, judged: Judged, outcome: NDArray[np.str_], chosen: NDArray[np.bool_]) -> list[str]:
    trials, labels = judged.column("trial")[chosen].astype(int), outcome[chosen]
    is_stuck = np.isin(labels, list(STUCK_OUTCOMES))
    holds = [labels == "solved", labels == "degenerate_zero", labels == "marginal", is_stuck]
    return [name, str(chosen.sum()), *(_rate(trials, mask) for mask in holds)]


def _rate(trials: NDArray[np.int64], holds: NDArray[np.bool_]) -> str:
    numbers, n = np.unique(trials, return_counts=True)
    return rate_text(
        pooled_rate([(size, int(holds[trials == trial].sum())) for trial, size in zip(numbers, n, strict=True)])
    )


def _clusters(judged: Judged, outcome: NDArray[np.str_]) -> Table:
    nearest = np.nanmin([judged.at_end(f"match_{name}") for name in ("mean", "cur", "prev", "additive")], axis=0)
    measures = (judged.gamma, judged.at_end("attention_product"), judged.at_end("ablation"), nearest)
    lines = [["outcome", "trainings", "gamma", "product of norms", "ablation / Var Y", "nearest match D_f"]]
    for name in COLOURS:
        chosen = outcome == name
        if chosen.any():
            quantiles = (np.nanquantile(measure[chosen], [0.05, 0.5, 0.95]) for measure in measures)
            cells = (" / ".join(f"{value:.1e}" for value in values) for values in quantiles)
            lines.append([name, str(chosen.sum()), *cells])
    return lines


def _sensitivity(judged: Judged) -> Table:
    lines = [["cut-off", "value", *_LABELS, "stuck"]]
    factors = (0.5, 1.0, 2.0)
    for module, name in CUT_OFFS:
        outcomes_by_factor = []
        for factor in factors:
            with cut_off(module, name, factor):
                outcomes_by_factor.append(judged.outcome())
        lines.append([name, f"{getattr(module, name):g}", *_shares(outcomes_by_factor)])
    lines.append(["loss_level / Var Y", "0.01", *_shares([judged.outcome(factor) for factor in factors])])
    return lines


def _shares(outcomes_by_factor: list[NDArray[np.str_]]) -> Iterator[str]:
    for labels in (*((label,) for label in _LABELS), tuple(STUCK_OUTCOMES)):
        yield " / ".join(f"{np.isin(outcome, labels).mean():.3f}" for outcome in outcomes_by_factor)


def _certificates(judged: Judged) -> Table:
    certified: dict[tuple[str, str, str, str], list[bool]] = {}
    for row in judged.rows:
        if row["certificate"] is not None:
            key = (row["param_dtype"], row["outcome"], row["outcome_detail"] or "", row["certificate"])
            certified.setdefault(key, []).append(row["certified"])
    return [
        ["dtype", "outcome", "detail", "certificate", "tested", "agree"],
        *([*key, str(len(results)), str(sum(results))] for key, results in sorted(certified.items())),
    ]


COLOURS = {
    "solved": "#009E73",
    "degenerate_zero": "#D55E00",
    "marginal": "#E69F00",
    "plateau": "#0072B2",
    "overfit": "#CC79A7",
    "diverged": "#000000",
}
"""The colour of each outcome, from Okabe & Ito 2008."""
_FLOOR = 1e-6
"""The lower end of both axes of the scatter plot; smaller values are drawn there."""
_CUT: dict[str, Any] = {"color": "0.4", "linewidth": 0.8, "linestyle": "--"}


def clusters_figure(judged: Judged, outcome: NDArray[np.str_]) -> Figure:
    """Draws a point for each training, in the colour of its outcome: the norm of the gradient, relative to weights and
    loss, against the strength of attention. Lines show the thresholds that decide the outcome."""
    figure = Figure(figsize=(9.6, 4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2, sharey=True)
    no_softmax = judged.column("param_attention_activation") != "softmax"
    _draw_cluster(left, judged, "attention_product", outcome, no_softmax)
    _draw_cluster(right, judged, "ablation", outcome, np.ones_like(no_softmax))
    left.axvline(full_outcomes.DEAD_PRODUCT, **_CUT)
    right.axvline(full_outcomes.DEAD_ABLATION, **_CUT)
    left.set_xlabel(r"$|k|\,|q|\,|v|$ (trainings without softmax)")
    right.set_xlabel(r"answers moved by attention, share of Var $Y$ (all)")
    left.set_ylabel(r"$\gamma = |\nabla|\,|\theta| / $ loss")
    right.legend(frameon=False, fontsize=8, markerscale=2, loc="lower right")
    return figure


def _draw_cluster(
    panel: Axes, judged: Judged, metric: str, outcome: NDArray[np.str_], shown: NDArray[np.bool_]
) -> None:
    x, y = (np.clip(values, _FLOOR, None) for values in (judged.at_end(metric), judged.gamma))
    for name, colour in COLOURS.items():
        chosen = (outcome == name) & shown
        panel.loglog(x[chosen], y[chosen], "o", markersize=2.5, alpha=0.6, color=colour, label=name)
    panel.axhline(outcomes.STATIONARY_GAMMA, **_CUT)
    panel.spines[["top", "right"]].set_visible(False)


def by_sigma_figure(judged: Judged, outcome: NDArray[np.str_]) -> Figure:
    """Draws the rate of each outcome against `init_sigma`, in a plot for each combination of softmax and skip
    connection."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    axes = figure.subplots(1, 4, sharey=True)
    cases = [("identity", True), ("identity", False), ("softmax", True), ("softmax", False)]
    activations, skips = judged.column("param_attention_activation"), judged.column("param_skip")
    for panel, (activation, skip) in zip(axes, cases, strict=True):
        _draw_shares(panel, judged, outcome, (activations == activation) & (skips == skip))
        panel.set_title(
            f"{'softmax' if activation == 'softmax' else 'no softmax'}, {'skip' if skip else 'no skip'}", fontsize=9
        )
    axes[0].set_ylabel("share of trainings")
    axes[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw_shares(panel: Axes, judged: Judged, outcome: NDArray[np.str_], shown: NDArray[np.bool_]) -> None:
    sigmas, groups = zip(
        *((sigma, outcome[shown & has_sigma]) for sigma, has_sigma in judged.groups("param_init_sigma")), strict=True
    )
    base = np.zeros(len(sigmas))
    for name, colour in COLOURS.items():
        shares = np.array([(group == name).mean() if group.size else 0.0 for group in groups])
        panel.bar(range(len(sigmas)), shares, bottom=base, color=colour, width=0.85, label=name)
        base += shares
    labels = ["default" if value is None else f"{value:g}" for value in sigmas]
    panel.set_xticks(range(len(sigmas)), labels, rotation=60, fontsize=7)
    panel.set_xlabel(r"initialization $\sigma$", fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
