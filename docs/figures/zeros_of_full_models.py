"""Figures and tables of docs/zeros.md on full models, from a ledger of `stuck_full`.

    attnsweep run stuck_full --dir sweeps/stuck_full
    python docs/figures/zeros_of_full_models.py sweeps/stuck_full [--out docs/figures]

Writes full_models_scatter.png and full_models_by_sigma.png, and prints the tables as Markdown. Labels under other
cut-offs are judged anew from the ledger's curves. `--kick N` trains N zeros and N / 4 plateaus that stood still again,
and kicks them (10 minutes for 112 on one core). Axes: L training, P probe.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.intervals import binomial_rate, pooled_rate
from attnsweep.orchestrator.inspection.replay import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.category_pairs import CategoryPairs, full_outcomes
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.engine.contract import STUCK_OUTCOMES, Evidence

COLOURS = {
    "solved": "#009E73",
    "degenerate_zero": "#D55E00",
    "marginal": "#E69F00",
    "plateau": "#0072B2",
    "overfit": "#CC79A7",
    "diverged": "#000000",
}
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
FLOOR = 1e-6
"""Where the scatter's axes begin: smaller values are drawn there."""


class Judged:
    """The trainings of a ledger as evidence, to be judged under any cut-offs."""

    def __init__(self, directory: Path) -> None:
        rows = Ledger(directory).trainings()
        self.rows: list[dict[str, Any]] = rows.filter(pa.compute.field("outcome") != "failed").to_pylist()
        place = {row["training_id"]: index for index, row in enumerate(self.rows)}
        curves = Ledger(directory).curves(["training_id", "step", "metric", "value"])
        step = curves["step"].to_numpy()
        self.steps, probe = np.unique(step, return_inverse=True)
        ids = curves["training_id"].combine_chunks().dictionary_decode().to_pylist()
        names = curves["metric"].combine_chunks().dictionary_decode().to_numpy(zero_copy_only=False)
        lane = np.array([place.get(each, -1) for each in ids])
        values = curves["value"].to_numpy()
        self.metrics: dict[str, NDArray[np.float64]] = {}
        for name in np.unique(names):
            table = np.full((len(self.rows), self.steps.size), np.nan)
            of_metric = (names == name) & (lane >= 0)
            table[lane[of_metric], probe[of_metric]] = values[of_metric]
            self.metrics[str(name)] = table
        finite = np.isfinite(self.metrics["eval_loss"])
        self.last = finite.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1)

    def at_end(self, metric: str) -> NDArray[np.float64]:
        """(L,) a metric where each training ended."""
        return self.metrics[metric][np.arange(len(self.rows)), self.last]

    def outcome(self, solved_factor: float = 1.0) -> NDArray[np.str_]:
        """(L,) what the trainings are called under the cut-offs as they stand."""
        found = np.empty(len(self.rows), dtype="<U15")
        for activation in ("identity", "softmax"):
            chosen = np.array([row["param_attention_activation"] == activation for row in self.rows])
            levels = {
                name: np.array([row[f"level_{name}"] for row in self.rows])[chosen] for name in ("zero", "mean", "cur")
            } | {"solved": solved_factor * np.array([row["loss_level"] for row in self.rows])[chosen]}
            evidence = Evidence(
                steps=self.steps.astype(np.int64),
                metrics={name: table[chosen] for name, table in self.metrics.items()},
                levels=levels,
            )
            parameters = _parameters(next(row for row in self.rows if row["param_attention_activation"] == activation))
            with np.errstate(invalid="ignore"):
                verdicts = CategoryPairs().judge(parameters, evidence)
            found[chosen] = verdicts.outcome[np.arange(chosen.sum()), self.last[chosen]]
        overflowed = np.array([row["diverged_step"] is not None for row in self.rows])
        return np.where(overflowed, "diverged", found)


def main() -> None:
    """Writes the figures and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--kick", type=int, default=0, metavar="N")
    options = parser.parse_args()
    judged = Judged(options.directory)
    recorded = np.array([row["outcome"] for row in judged.rows])
    again = judged.outcome()
    _scatter(judged, recorded).savefig(options.out / "full_models_scatter.png")
    _by_sigma(judged, recorded).savefig(options.out / "full_models_by_sigma.png")
    lines = [f"{len(recorded)} trainings, judged again alike: {(recorded == again).mean():.4f}", ""]
    for table in (_rates, _clusters):
        lines += [*table(judged, recorded), ""]
    lines += [*_sensitivity(judged), "", *_certificates(judged)]
    if options.kick:
        sweep = SweepDirectory.open(options.directory)
        still = [row for row in judged.rows if row["outcome"] == "plateau" and row["outcome_detail"] is None]
        zeros = [row for row in judged.rows if row["outcome"] == "degenerate_zero"]
        lines += ["", *_kicked("zeros", sweep, zeros, options.kick)]
        lines += _kicked("plateaus that stood still", sweep, still, options.kick // 4)
    sys.stdout.write("\n".join(lines) + "\n")


def _kicked(name: str, sweep: SweepDirectory, rows: list[dict[str, Any]], n: int) -> list[str]:
    """How many of a sample fall when kicked."""
    torch.set_num_threads(1)
    sample = sorted(rows, key=lambda row: row["training_id"])[:n]
    freed: list[bool] = []
    for _, group in itertools.groupby(sorted(sample, key=_static_key), key=_static_key):
        lanes, state = retrain(sweep, [row["training_id"] for row in group])
        # Told that all are zeros, so that all are kicked.
        labels = np.full(len(lanes.trainings), "degenerate_zero")
        found = CategoryPairs().certify(lanes, state, labels, labels)
        freed += [each is not None and each.agrees for each in found]
    rate = binomial_rate(sum(freed), len(freed))
    return [f"kicked {name}: {rate.k} of {rate.n} fall by 5%, {rate.share:.2f} [{rate.low:.2f}, {rate.high:.2f}]"]


def _static_key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in _parameters(row).static_key())


def _parameters(row: dict[str, Any]) -> CategoryPairsParameters:
    declared = CategoryPairsParameters.declared()
    return CategoryPairsParameters.resolve({name: row[f"param_{name}"] for name in declared})


def _gamma(judged: Judged) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return judged.at_end("train_grad_norm") * judged.at_end("param_norm") / judged.at_end("loss")


def _scatter(judged: Judged, outcome: NDArray[np.str_]) -> Figure:
    figure = Figure(figsize=(9.6, 4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2, sharey=True)
    gamma = np.clip(_gamma(judged), FLOOR, None)
    softmax = np.array([row["param_attention_activation"] == "softmax" for row in judged.rows])
    for name, colour in COLOURS.items():
        for panel, metric, shown in ((left, "attention_product", ~softmax), (right, "ablation", softmax | ~softmax)):
            chosen = (outcome == name) & shown
            x = np.clip(judged.at_end(metric), FLOOR, None)
            panel.loglog(x[chosen], gamma[chosen], "o", markersize=2.5, alpha=0.6, color=colour, label=name)
    left.axvline(full_outcomes.DEAD_PRODUCT, color="0.4", linewidth=0.8, linestyle="--")
    right.axvline(full_outcomes.DEAD_ABLATION, color="0.4", linewidth=0.8, linestyle="--")
    for panel in (left, right):
        panel.axhline(outcomes.STATIONARY_GAMMA, color="0.4", linewidth=0.8, linestyle="--")
        panel.spines[["top", "right"]].set_visible(False)
    left.set_xlabel(r"$|k|\,|q|\,|v|$ (trainings without softmax)")
    right.set_xlabel(r"answers moved by attention, share of Var $Y$ (all)")
    left.set_ylabel(r"$\gamma = |\nabla|\,|\theta| / $ loss")
    right.legend(frameon=False, fontsize=8, markerscale=2, loc="lower right")
    return figure


def _by_sigma(judged: Judged, outcome: NDArray[np.str_]) -> Figure:
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    axes = figure.subplots(1, 4, sharey=True)
    sigmas = sorted({row["param_init_sigma"] for row in judged.rows}, key=lambda sigma: (sigma is None, sigma or 0.0))
    cases = [("identity", True), ("identity", False), ("softmax", True), ("softmax", False)]
    for panel, (activation, skip) in zip(axes, cases, strict=True):
        base = np.zeros(len(sigmas))
        for name, colour in COLOURS.items():
            shares = []
            for sigma in sigmas:
                group = np.array(
                    [
                        (row["param_attention_activation"], row["param_skip"], row["param_init_sigma"])
                        == (activation, skip, sigma)
                        for row in judged.rows
                    ]
                )
                shares.append((outcome[group] == name).mean() if group.any() else 0.0)
            panel.bar(range(len(sigmas)), shares, bottom=base, color=colour, width=0.85, label=name)
            base += shares
        panel.set_xticks(
            range(len(sigmas)), ["default" if s is None else f"{s:g}" for s in sigmas], rotation=60, fontsize=7
        )
        panel.set_title(
            f"{'softmax' if activation == 'softmax' else 'no softmax'}, {'skip' if skip else 'no skip'}", fontsize=9
        )
        panel.set_xlabel(r"initialization $\sigma$", fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of trainings")
    axes[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _rates(judged: Judged, outcome: NDArray[np.str_]) -> Iterator[str]:
    yield "| where | trainings | solved | degenerate_zero | marginal | stuck |"
    yield "|---|---|---|---|---|---|"
    yield _rate_line("all", judged, outcome, np.ones(len(outcome), dtype=bool))
    for column in (
        "variant",
        "param_flavour",
        "param_attention_activation",
        "param_skip",
        "param_attention_scale",
        "param_init_sigma",
    ):
        values = {row[column] for row in judged.rows}
        for value in sorted(values, key=lambda each: (each is None, str(type(each)), each if each is not None else 0)):
            chosen = np.array([row[column] == value for row in judged.rows])
            if column == "param_flavour":
                chosen &= np.array([row["variant"] == "combined" for row in judged.rows])
            yield _rate_line(f"{column.removeprefix('param_')} = {value}", judged, outcome, chosen)
    for low in range(-7, -1):
        exponent = np.array([np.floor(np.log10(row["param_layer_norm_eps"])) for row in judged.rows])
        yield _rate_line(f"layer_norm_eps 1e{low}..1e{low + 1}", judged, outcome, exponent == low)


def _rate_line(name: str, judged: Judged, outcome: NDArray[np.str_], chosen: NDArray[np.bool_]) -> str:
    trials = np.array([row["trial"] for row in judged.rows])[chosen]
    cells = [
        _rate(trials, outcome[chosen] == "solved"),
        _rate(trials, outcome[chosen] == "degenerate_zero"),
        _rate(trials, outcome[chosen] == "marginal"),
        _rate(trials, np.isin(outcome[chosen], list(STUCK_OUTCOMES))),
    ]
    return f"| {name} | {chosen.sum()} | {' | '.join(cells)} |"


def _rate(trials: NDArray[np.int64], holds: NDArray[np.bool_]) -> str:
    counts = [(int((trials == trial).sum()), int(holds[trials == trial].sum())) for trial in np.unique(trials)]
    rate = pooled_rate(counts)
    return "-" if rate.share is None else f"{rate.share:.3f} [{rate.low:.3f}, {rate.high:.3f}]"


def _sensitivity(judged: Judged) -> Iterator[str]:
    yield (
        "| cut-off | value | "
        + " | ".join(f"{name} x0.5 / x1 / x2" for name in ("solved", "degenerate_zero", "marginal", "overfit", "stuck"))
        + " |"
    )
    yield "|---|---|---|---|---|---|---|"
    for module, name in CUT_OFFS:
        found = []
        for factor in (0.5, 1.0, 2.0):
            with _cut_off(module, name, factor):
                found.append(judged.outcome())
        yield f"| {name} | {getattr(module, name):g} | {_three(found)} |"
    yield f"| loss_level / Var Y | 0.01 | {_three([judged.outcome(factor) for factor in (0.5, 1.0, 2.0)])} |"


def _three(found: list[NDArray[np.str_]]) -> str:
    cells = [
        " / ".join(f"{(outcome == name).mean():.3f}" for outcome in found)
        for name in ("solved", "degenerate_zero", "marginal", "overfit")
    ]
    cells.append(" / ".join(f"{np.isin(outcome, list(STUCK_OUTCOMES)).mean():.3f}" for outcome in found))
    return " | ".join(cells)


@contextmanager
def _cut_off(module: ModuleType, name: str, factor: float) -> Iterator[None]:
    was = getattr(module, name)
    setattr(module, name, factor * was)
    try:
        yield
    finally:
        setattr(module, name, was)


def _clusters(judged: Judged, outcome: NDArray[np.str_]) -> Iterator[str]:
    """How far the clusters lie from the cut-offs: quantiles of what is cut."""
    yield "| outcome | trainings | gamma 5 / 50 / 95% | product of norms | ablation / Var Y | nearest match D_f |"
    yield "|---|---|---|---|---|---|"
    nearest = np.nanmin([judged.at_end(f"match_{name}") for name in ("mean", "cur", "prev", "additive")], axis=0)
    for name in COLOURS:
        chosen = outcome == name
        if chosen.any():
            cells = [
                " / ".join(f"{value:.1e}" for value in np.nanquantile(each[chosen], [0.05, 0.5, 0.95]))
                for each in (_gamma(judged), judged.at_end("attention_product"), judged.at_end("ablation"), nearest)
            ]
            yield f"| {name} | {chosen.sum()} | {' | '.join(cells)} |"


def _certificates(judged: Judged) -> Iterator[str]:
    yield "| outcome | detail | certificate | tested | agree |"
    yield "|---|---|---|---|---|"
    tested = [row for row in judged.rows if row["certificate"] is not None]
    keys = sorted({(row["outcome"], row["outcome_detail"] or "", row["certificate"]) for row in tested})
    for key in keys:
        group = [
            row["certified"]
            for row in tested
            if (row["outcome"], row["outcome_detail"] or "", row["certificate"]) == key
        ]
        yield f"| {' | '.join(key)} | {len(group)} | {sum(group)} |"


if __name__ == "__main__":
    main()
