"""Figure 3 of Shin & Matzinger 2025: attention weights of the combined model's four flavours."""

from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import median_row
from attnsweep.reproduction.shin.fig2 import FLAVOURS, size_note, swept_full
from attnsweep.reproduction.shin.heat_map import draw_heat_map
from attnsweep.reproduction.swept import swept
from attnsweep.workloads.engine.optimizers import State

_MATRICES = {"logits": "k^t q", "values": "v"}
_BLOCKS = {
    "lean_1": (("logits", "pp"), ("values", "cc")),
    "lean_2": (("logits", "cc"), ("values", "pp")),
    "lean_3": (("logits", "pp"), ("values", "cc")),
}
"""The blocks in which each solution has its weights: c categories, p positions."""
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


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains four flavours x 20 seeds, and compares their blocks with those of their solutions."""
    return compare(swept("shin_flavours", directory, console), directory)


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """The same at the paper's size."""
    return compare(swept_full(directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws the training of median loss of each flavour, which it trains again."""
    with Ledger(sweep.place).connect() as connection:
        shown = [connection.execute(_MEDIAN_TRAINING, [flavour] * 2).fetchall()[0][0] for flavour in FLAVOURS]
    lanes, state = ended_lanes(sweep, shown)
    n_categories = lanes.shared.n_categories
    return Comparison(
        title="shin-fig3: attention weights of the four flavours",
        source="Shin & Matzinger 2025, section 4.1, Figure 3",
        rows=block_rows(sweep),
        figures=save_figure(_figure(state, n_categories), directory, "shin-fig3"),
        notes=[
            f"c: categories, the first {n_categories} rows; p: positions. Matches are absolute correlations "
            "(workloads/category_pairs/heads.py).",
            "Solution 1 determines v on c only up to an invertible matrix, which the feed-forward part inverts. Its "
            "match with I need not be high.",
            size_note(sweep),
            f"Drawn: the seed of median test loss of each flavour: {', '.join(shown)}.",
        ],
    )


def block_rows(sweep: SweepDirectory) -> list[ComparedValue]:
    """Where each flavour's weights are and what they match, the median of its trainings."""
    rows = []
    with Ledger(sweep.place).connect() as connection:
        for flavour, blocks in _BLOCKS.items():
            solution = FLAVOURS[flavour][0]
            named = [
                (f"share of |{_MATRICES[matrix]}|^2 on {block}", f"share_{matrix}_{block}") for matrix, block in blocks
            ]
            for name, score in (*named, *_MATCHES[flavour]):
                values = [value for (value,) in connection.execute(_SCORES.format(score=score), [flavour]).fetchall()]
                rows.append(median_row(f"{solution}: {name}", values, published="as its solution", agrees_above=0.5))
    return rows


def _figure(state: State, n_categories: int) -> Figure:
    """Two rows of heat maps, k^t q and v, with one column per flavour."""
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
