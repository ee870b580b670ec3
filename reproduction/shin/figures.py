"""Figures 1 to 3 of Shin & Matzinger 2025: what the model of solution 2 (attention over categories) learns, and the
combined model with four flavours, penalties that favour one of three solutions or none.
"""

import math
from pathlib import Path

import duckdb
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.learning_curves import quartile_curves
from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import median_difference_row, median_row, share_row
from attnsweep.reproduction.trained import queried, swept
from attnsweep.workloads.engine.optimizers import State

_MATCH = """
select training_id, score_match_logits_target, eval_loss / level_mean
from heads join trainings using (training_id, trial, replicate)
qualify row_number() over (partition by training_id order by step desc) = 1
order by score_match_logits_target
"""
"""Selects each training's id, match with the target, and loss at its last probe, the worst match first."""


def compare_fig1(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares a finished sweep with figure 1 of Shin & Matzinger. Draws the learned attention logits beside the random
    table that the model should learn, for the training whose correlation between the two is the median.
    """
    matches = queried(sweep, _MATCH)
    middle = matches[len(matches) // 2][0]
    _, state = ended_lanes(sweep, [middle])
    logits = (state["k_SS"].mT @ state["q_SS"])[0].double().numpy()
    figure = _figure_1(state["target_NN"][0].double().numpy(), logits)
    return Comparison(
        title="shin-fig1: the learned k^t q of solution 2 beside q*",
        source="Shin & Matzinger 2025, section 4.1, Figure 1",
        rows=[
            median_row(
                f"|correlation| of k^t q with q*, median of {len(matches)} seeds",
                [match for _, match, _ in matches],
                published="a scaled q*",
                agrees_above=0.95,
            ),
            median_row("test MSE / Var Y, median", [loss for _, _, loss in matches], published=None),
        ],
        figures=save_figure(figure, directory, "shin-fig1"),
        notes=[
            "Columns of k^t q are compared without their means: a constant per current category says nothing about the "
            "previous category.",
            f"Drawn: the seed of median correlation, training {middle}.",
            'The paper\'s "50 iterations" are taken as calls of torch.optim.LBFGS of up to 20 iterations each. Ours '
            "are 300 single iterations at N = 10, M = 50, 1,000 texts.",
        ],
    )


def _figure_1(target_NN: NDArray[np.float64], logits_NN: NDArray[np.float64]) -> Figure:
    figure = Figure(figsize=(9.6, 3.2), layout="constrained", dpi=200)
    left, middle, right = figure.subplots(1, 3)
    names = ("current category", "previous category")
    draw_heat_map(left, target_NN - target_NN.mean(0), r"$q^*$ less column means", *names)
    learned = logits_NN - logits_NN.mean(0)
    draw_heat_map(middle, learned, r"learned $k^\top q$ less column means", *names)
    x, y = (target_NN - target_NN.mean(0)).ravel(), learned.ravel()
    right.plot(x, y, "o", markersize=3, color="#0072B2")
    right.axline((0, 0), slope=float(x @ y / (x @ x)), color="#595959", linewidth=0.8)
    framed(right, xlabel=r"$q^*$", ylabel=r"learned $k^\top q$")
    right.set_title(f"entry by entry, r = {np.corrcoef(x, y)[0, 1]:.4f}", fontsize=9)
    return figure


FLAVOURS = {
    "unconstrained": ("unconstrained", "#000000"),
    "lean_1": ("towards solution 1", "#0072B2"),
    "lean_2": ("towards solution 2", "#D55E00"),
    "lean_3": ("towards solution 3", "#009E73"),
}
"""The names and colours of the flavours (penalties towards one solution); colours from Okabe & Ito 2008."""

_CLAIMS = (
    ("lean_2", "lean_1", "1 far better than 2"),
    ("lean_2", "lean_3", "3 far better than 2"),
    ("lean_1", "unconstrained", "unconstrained best"),
    ("lean_3", "unconstrained", "unconstrained best"),
)
"""Pairs of a worse and a better flavour (penalty towards one solution), with the paper's words on how they compare."""
_MAJORITY = (math.nextafter(0.5, 1.0), 1.0)
_FINAL_IN_TRAINING = """
select log10(value / level_mean) from curves join trainings using (training_id)
where param_flavour = ? and metric = 'train_mse' and value > 0
qualify step = max(step) over (partition by training_id)
"""
_FINAL = "select log10(eval_loss / level_mean) from trainings where param_flavour = ? and eval_loss is not null"
_ROLES = """
select role, count(*) from (
    select role from heads join trainings using (training_id, trial, replicate) where param_flavour = 'unconstrained'
    qualify step = max(step) over (partition by training_id)
) group by role
"""


def reproduce_fig2_full(directory: Path, console: Console) -> Comparison:
    """Reproduces figure 2 of Shin & Matzinger at the paper's size: the losses with four different penalties, for the
    model whose attention sees both categories and positions."""
    return compare_fig2(swept_full(directory, console), directory)


def swept_full(directory: Path, console: Console) -> SweepDirectory:
    """Runs or continues the sweep that trains one model at the paper's size with four variants of the loss: three with
    a penalty that favours one solution of the task, and one without. It uses compiled gradients, which halve the time.
    """
    return swept("shin_flavours_full", directory, console, engine="auto")


def compare_fig2(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the losses of a model that was trained with four variants of the loss, and draws their curves. Three
    variants have a penalty that favours one solution of the task, and one has no penalty.

    The model attends by both categories and positions: the paper's combined model. The variants are called flavours.
    """
    final, in_training = (
        {flavour: [loss for (loss,) in queried(sweep, query, flavour)] for flavour in FLAVOURS}
        for query in (_FINAL, _FINAL_IN_TRAINING)
    )
    roles = dict(queried(sweep, _ROLES))
    with Ledger(sweep.place).connect() as connection:
        figure = _figure_2(connection)
    return Comparison(
        title="shin-fig2: log-MSE of the combined model's four flavours",
        source="Shin & Matzinger 2025, section 4.1, Figure 2",
        rows=[
            *(
                median_row(f"log10({kind} MSE / Var Y), {name}, median", losses[flavour], published=None)
                for kind, losses in (("test", final), ("training", in_training))
                for flavour, (name, _) in FLAVOURS.items()
            ),
            *(
                median_difference_row(f"{worse} above {better}, decades", final[worse], final[better], published=claim)
                for worse, better, claim in _CLAIMS
            ),
            share_row(
                "unconstrained trainings labelled a mixture of 2 and another",
                roles.get("mixed", 0),
                sum(roles.values()),
                published="by combining 3 and 2",
                agrees_within=_MAJORITY,
            ),
        ],
        figures=save_figure(figure, directory, "shin-fig2"),
        notes=[
            "The losses that lean a flavour towards a solution are ours (workloads/category_pairs/full_model.py): the "
            "paper does not print its own.",
            size_note(sweep),
        ],
    )


def size_note(sweep: SweepDirectory) -> str:
    """Describes in words how the sizes of a sweep over flavours (penalties that favour a solution) differ from the
    paper's.
    """
    sizes = sweep.spec.fixed()
    return (
        f"Ours: N = {sizes['n_categories']}, M = {sizes['n_positions']}, {sizes['batch_size']:,} texts,"
        f" {sizes['n_steps']:,} iterations, {sweep.spec.replicates} seeds a flavour. The paper: N = 10, M = 50, 1,000"
        f" texts, 50 iterations, "
        "taken as calls of torch.optim.LBFGS of up to 20 iterations each; --full has this size (two CPU hours)."
    )


def _figure_2(connection: duckdb.DuckDBPyConnection) -> Figure:
    figure = Figure(figsize=(5.4, 3.8), layout="constrained", dpi=200)
    panel = figure.subplots()
    tested, in_training = (
        quartile_curves(connection, "param_flavour", "log10(value / level_mean)", metric=metric)
        for metric in ("eval_loss", "train_mse")
    )
    for flavour, (name, colour) in FLAVOURS.items():
        points = [point for point in tested[flavour] if point.step > 0]
        steps = [point.step for point in points]
        low, middle, high = np.array([(point.low, point.median, point.high) for point in points]).T
        panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(steps, middle, color=colour, linewidth=1.4, label=name)
        training = [(point.step, point.median) for point in in_training[flavour] if point.step > 0]
        panel.plot(*zip(*training, strict=True), color=colour, linewidth=1, linestyle=":")
    framed(panel, xscale="log", xlabel="L-BFGS iterations", ylabel=r"$\log_{10}$(MSE / Var $Y$)")
    panel.legend(frameon=False, fontsize=8, title="test; dotted: training", title_fontsize=8)
    panel.grid(color="0.92", linewidth=0.6)
    return figure


_MATRICES = {"logits": "k^t q", "values": "v"}
_BLOCKS = {
    "lean_1": (("logits", "pp"), ("values", "cc")),
    "lean_2": (("logits", "cc"), ("values", "pp")),
    "lean_3": (("logits", "pp"), ("values", "cc")),
}
"""The blocks of k^t q and v in which each solution has its weights; in their names c stands for categories, p for
positions."""
_MATCHES = {
    "lean_1": (("k^t q on positions with U", "match_logits_shift"), ("v with I", "match_values_identity")),
    "lean_2": (("k^t q on categories with q*", "match_logits_target"), ("v with U^t", "match_values_shift")),
    "lean_3": (("k^t q on positions with U", "match_logits_shift"), ("v with q*^t", "match_values_target")),
}
_SCORES = """
select score_{score} from heads join trainings using (training_id, trial, replicate)
where param_flavour = ? and score_{score} is not null qualify step = max(step) over (partition by training_id)
"""
_MEDIAN_TRAINING = """
select training_id from trainings where param_flavour = ? order by eval_loss
limit 1 offset (select count(*) from trainings where param_flavour = ?) // 2
"""


def reproduce_fig3_full(directory: Path, console: Console) -> Comparison:
    """Reproduces figure 3 of the paper at the paper's size: the attention matrices that a model learns with four
    different penalties on its weights."""
    return compare_fig3(swept_full(directory, console), directory)


def compare_fig3(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the matrices that a finished sweep has learned with figure 3 of Shin & Matzinger 2025. For each
    `flavour` (the solution towards which an added loss pulls, or none), trains the model of median loss again and draws
    its matrices."""
    shown = [queried(sweep, _MEDIAN_TRAINING, flavour, flavour)[0][0] for flavour in FLAVOURS]
    lanes, state = ended_lanes(sweep, shown)
    n_categories = lanes.shared.n_categories
    return Comparison(
        title="shin-fig3: attention weights of the four flavours",
        source="Shin & Matzinger 2025, section 4.1, Figure 3",
        rows=block_rows(sweep),
        figures=save_figure(_figure_3(state, n_categories), directory, "shin-fig3"),
        notes=[
            f"c: categories, the first {n_categories} rows; p: positions. Matches are absolute correlations "
            "(workloads/category_pairs/head_scores.py).",
            "Solution 1 determines v on c only up to an invertible matrix, which the feed-forward part inverts. Its "
            "match with I need not be high.",
            size_note(sweep),
            f"Drawn: the seed of median test loss of each flavour: {', '.join(shown)}.",
        ],
    )


def block_rows(sweep: SweepDirectory) -> list[ComparedValue]:
    """Compares, for each penalty that favours one of the paper's solutions, the attention matrices that are learned
    under this penalty with the matrices of that solution.

    For each matrix, one row gives the share of its squared entries in the block where the solution has its weights, and
    one how this block correlates with the solution's. Both are medians over trainings.
    """
    rows = []
    for flavour, blocks in _BLOCKS.items():
        named = [
            (f"share of |{_MATRICES[matrix]}|^2 on {block}", f"share_{matrix}_{block}") for matrix, block in blocks
        ]
        for name, score in (*named, *_MATCHES[flavour]):
            values = [value for (value,) in queried(sweep, _SCORES.format(score=score), flavour)]
            row = f"{FLAVOURS[flavour][0]}: {name}"
            rows.append(median_row(row, values, published="as its solution", agrees_above=0.5))
    return rows


def _figure_3(state: State, n_categories: int) -> Figure:
    figure = Figure(figsize=(13, 6.2), layout="constrained", dpi=160)
    axes = figure.subplots(2, len(FLAVOURS))
    matrices = {r"$k^\top q$": state["k_SS"].mT @ state["q_SS"], "$v$": state["v_VV"]}
    names = {r"$k^\top q$": ("attends from", "attends to"), "$v$": ("reads", "writes")}
    for row, (matrix, values) in zip(axes, matrices.items(), strict=True):
        for panel, (flavour, _), value in zip(row, FLAVOURS.values(), values, strict=True):
            draw_heat_map(panel, value.double().numpy(), f"{matrix}, {flavour}", *names[matrix])
            for line in (panel.axhline, panel.axvline):
                line(n_categories - 0.5, color="0.4", linewidth=0.5)
    return figure


def draw_heat_map(panel: Axes, matrix: NDArray[np.float64], title: str, columns: str, rows: str) -> None:
    """Draws a matrix as a heat map with its colour bar: red above 0, blue below.

    Args:
        panel: The axes to draw into.
        matrix: Finite values.
        title: Title of the axes.
        columns, rows: Labels of the two axes.
    """
    largest = float(np.abs(matrix).max()) or 1.0
    image = panel.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
    panel.set_title(title, fontsize=9)
    panel.set_xlabel(columns, fontsize=8)
    panel.set_ylabel(rows, fontsize=8)
    panel.tick_params(labelsize=7)
    figure = panel.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=panel, shrink=0.8).ax.tick_params(labelsize=7)
