"""The figures and tables of docs/zeros.md on full models, from the sweep `stuck_full`. Axes: L training."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate
from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import Comparison, save_figure
from attnsweep.reproduction.rows import share_row
from attnsweep.reproduction.studies.full_models_figures import COLOURS, by_sigma_figure, clusters_figure
from attnsweep.reproduction.studies.judged import Judged, cut_off, parameters_of
from attnsweep.reproduction.swept import swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.category_pairs import CategoryPairs, full_outcomes
from attnsweep.workloads.category_pairs.certificates import split
from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.diagnostics.kicks import KICKS, MOST_TELLING, kick_and_train
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES

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
"""The cut-offs that label the full models, and the modules that define them."""
N_KICKED = 32
"""Number of zeros that are kicked; a quarter as many plateaus are."""
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


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 512 trials x 4 seeds of the full models, and counts how they get stuck."""
    return compare(swept("stuck_full", directory, console), directory)


def reproduce_kicks(directory: Path, console: Console) -> Comparison:
    """Trains these models in float64, some of them again, and kicks those where they ended.

    In float64, as the descent after a kick: float32 has zeros of its arithmetic, which float64 leaves without a kick.
    """
    in_float64 = load_sweep("stuck_full").fix({"dtype": "float64"})
    sweep = swept("stuck_full", directory / "float64", console, changed=in_float64)
    console.print(f"training {N_KICKED} zeros and {N_KICKED // 4} plateaus again, and kicking them")
    return compare_kicks(sweep, N_KICKED)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, judges its trainings again, and draws them."""
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
    """Kicks `n_zeros` zeros of a finished sweep, and a quarter as many plateaus that no longer moved."""
    # The order of ids is arbitrary: the first of them are a sample.
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
            f"A kick of more than {MOST_TELLING:g} is a new start and proves nothing (docs/zeros.md).",
        ],
    )


def _smallest_kicks(sweep: SweepDirectory, rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """The smallest kick that freed each of these trainings; NaN where none did."""
    found = []
    for _, group in itertools.groupby(sorted(rows, key=_static_key), key=_static_key):
        lanes, state = ended_lanes(sweep, [row["training_id"] for row in group])
        in_float64 = {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
        workload = CategoryPairs()
        objective, parameters = split(workload.build(lanes.shared).double(), workload.loss, in_float64)
        found.append(kick_and_train(objective, parameters, lanes.streams).smallest.numpy())
    return np.concatenate(found)


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
        values = judged.column(column)
        asked = is_combined if column == "param_flavour" else everywhere
        for value in sorted(set(values), key=lambda each: (each is None, str(type(each)), each or 0)):
            chosen = asked & np.array([each == value for each in values])
            lines.append(_rate_line(f"{column.removeprefix('param_')} = {value}", judged, outcome, chosen))
    dtype, sigma = judged.column("param_dtype"), judged.column("param_init_sigma")
    if len(set(dtype)) > 1:
        for pair in sorted(
            set(zip(dtype, sigma, strict=True)), key=lambda each: (each[0], each[1] is None, each[1] or 0)
        ):
            chosen = (dtype == pair[0]) & np.array([each == pair[1] for each in sigma])
            lines.append(_rate_line(f"dtype = {pair[0]}, init_sigma = {pair[1]}", judged, outcome, chosen))
    exponent = np.floor(np.log10(judged.column("param_layer_norm_eps").astype(float)))
    decades = {f"layer_norm_eps 1e{low}..1e{low + 1}": exponent == low for low in range(-7, -1)}
    return [*lines, *(_rate_line(name, judged, outcome, chosen) for name, chosen in decades.items())]


def _rate_line(name: str, judged: Judged, outcome: NDArray[np.str_], chosen: NDArray[np.bool_]) -> list[str]:
    trials, found = judged.column("trial")[chosen].astype(int), outcome[chosen]
    is_stuck = np.isin(found, list(STUCK_OUTCOMES))
    holds = [found == "solved", found == "degenerate_zero", found == "marginal", is_stuck]
    return [name, str(chosen.sum()), *(_rate(trials, each) for each in holds)]


def _rate(trials: NDArray[np.int64], holds: NDArray[np.bool_]) -> str:
    counts = [(int((trials == trial).sum()), int(holds[trials == trial].sum())) for trial in np.unique(trials)]
    rate = pooled_rate(counts)
    return "-" if rate.share is None else f"{rate.share:.3f} [{rate.low:.3f}, {rate.high:.3f}]"


def _clusters(judged: Judged, outcome: NDArray[np.str_]) -> Table:
    nearest = np.nanmin([judged.at_end(f"match_{name}") for name in ("mean", "cur", "prev", "additive")], axis=0)
    measures = (judged.gamma, judged.at_end("attention_product"), judged.at_end("ablation"), nearest)
    lines = [["outcome", "trainings", "gamma", "product of norms", "ablation / Var Y", "nearest match D_f"]]
    for name in COLOURS:
        chosen = outcome == name
        if chosen.any():
            quantiles = (np.nanquantile(each[chosen], [0.05, 0.5, 0.95]) for each in measures)
            cells = (" / ".join(f"{value:.1e}" for value in each) for each in quantiles)
            lines.append([name, str(chosen.sum()), *cells])
    return lines


def _sensitivity(judged: Judged) -> Table:
    lines = [["cut-off", "value", *_LABELS, "stuck"]]
    factors = (0.5, 1.0, 2.0)
    for module, name in CUT_OFFS:
        found = []
        for factor in factors:
            with cut_off(module, name, factor):
                found.append(judged.outcome())
        lines.append([name, f"{getattr(module, name):g}", *_shares(found)])
    lines.append(["loss_level / Var Y", "0.01", *_shares([judged.outcome(factor) for factor in factors])])
    return lines


def _shares(found: list[NDArray[np.str_]]) -> Iterator[str]:
    for labels in (*((label,) for label in _LABELS), tuple(STUCK_OUTCOMES)):
        yield " / ".join(f"{np.isin(outcome, labels).mean():.3f}" for outcome in found)


def _certificates(judged: Judged) -> Table:
    certified: dict[tuple[str, str, str, str], list[bool]] = {}
    for row in judged.rows:
        if row["certificate"] is not None:
            key = (row["param_dtype"], row["outcome"], row["outcome_detail"] or "", row["certificate"])
            certified.setdefault(key, []).append(row["certified"])
    return [
        ["dtype", "outcome", "detail", "certificate", "tested", "agree"],
        *([*key, str(len(each)), str(sum(each))] for key, each in sorted(certified.items())),
    ]
