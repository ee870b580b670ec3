"""Behrens et al. 2024: which attention blocks learn to count letters, depending on the embedding width and the width of
the hidden layer.

Axes: D embedding width d, P hidden width p.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import Bounds, rate_text, share_row
from attnsweep.reproduction.trained import queried, swept
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.catalog.field import histogram

_CELLS = """
select param_mixing, param_d_model, param_d_ffn, any_value(param_n_letters), count(*),
    count(*) filter (outcome = 'solved'), avg(accuracy)
from trainings join (
    select training_id, arg_max(value, step) as accuracy from curves where metric = 'accuracy' group by 1
) using (training_id) group by 1, 2, 3 order by 1, 2, 3
"""
_SOME: Bounds = (0.01, 1.0)
_HARDLY_ANY: Bounds = (0.0, 0.1)


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of one configuration of the sweep: how many trainings it has, how many are solved, and their mean
    accuracy.
    """

    n: int
    n_solved: int
    accuracy: float


Cells = Mapping[tuple[str, int, int], Cell]
"""The results of the configurations by mixing (the kind of attention), embedding width and hidden width."""


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares a finished sweep with the paper, and draws how many trainings are solved for each width of the embedding
    and of the hidden layer.
    """
    rows = queried(sweep, _CELLS)
    n_letters = int(rows[0][3])
    cells = {(mixing, d, p): Cell(n, solved, accuracy) for mixing, d, p, _, n, solved, accuracy in rows}
    mixings = sorted({mixing for mixing, _, _ in cells})
    return Comparison(
        title="histogram: who learns to count letters, by the widths d of the embedding and p of the hidden layer",
        source="Behrens, Biggio & Zdeborova 2024, arXiv 2407.11542, Figure 1 (T = 32 letters, 5 seeds)",
        rows=list(rows_of(cells, n_letters)),
        tables=[(f"{mixing}: share solved, and mean accuracy", _table(cells, mixing)) for mixing in mixings],
        figures=save_figure(_figure(cells, mixings, n_letters), directory, "histogram"),
        notes=[
            f"T = {n_letters} letters. Solved: 99% of the counts are right at one probe; the source marks 99% and 100% "
            "of the best of 5 seeds.",
            "Published are the marks of Figure 1, in its row without softmax. The plane is divided by d = T and p = T: "
            "a quarter is marked if some of its cells are.",
            "A mark agrees with a share above 1%, no mark with one below 10%.",
        ],
    )


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """Repeats the sweep at the paper's size: 32 letters, 10 tokens, 500 epochs of 313 steps, and 14 embedding widths
    times 14 hidden widths.
    """
    widths = Categorical((1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128))
    sizes = {"n_letters": 32, "n_tokens": 10, "batch_size": 32, "learning_rate": 1e-3, "n_steps": 156_500}
    space = {
        "softmax": False,
        "mixing": Categorical(("bos", "dot", "lin")),
        "d_model": widths,
        "d_ffn": widths,
        **sizes,
    }
    spec = histogram.but(name="histogram_full", space=space, trials=3 * 14 * 14, replicates=5)
    return compare(swept(spec.name, directory, console, "auto", changed=spec), directory)


def rows_of(cells: Cells, T: int) -> Iterator[ComparedValue]:
    """Compares with the paper's figure how many trainings are solved, separately for small and large embedding widths
    and hidden widths (four combinations).
    """
    for mixing, marks in (("lin", (True, False, False, False)), ("bos", (True, True, True, None))):
        quarters = ((True, True), (False, True), (True, False), (False, False))
        for (is_wide, is_deep), is_marked in zip(quarters, marks, strict=True):
            inside = [
                cell
                for (kind, d, p), cell in cells.items()
                if kind == mixing and (d >= T, p >= T) == (is_wide, is_deep)
            ]
            if not inside:
                continue
            name = f"{mixing}, d {'>=' if is_wide else '<'} T, p {'>=' if is_deep else '<'} T: solved"
            published = {True: "marked", False: "no mark", None: None}[is_marked]
            within = {True: _SOME, False: _HARDLY_ANY, None: None}[is_marked]
            n, n_solved = sum(cell.n for cell in inside), sum(cell.n_solved for cell in inside)
            yield share_row(name, n_solved, n, published=published, agrees_within=within)


def _widths(cells: Cells) -> tuple[list[int], list[int]]:
    return sorted({d for _, d, _ in cells}), sorted({p for _, _, p in cells})


def _table(cells: Cells, mixing: str) -> list[list[str]]:
    ds, ps = _widths(cells)
    rows = [["d", *(f"p = {p}" for p in ps)]]
    for d in ds:
        texts = []
        for p in ps:
            cell = cells[mixing, d, p]
            texts.append(f"{rate_text(binomial_rate(cell.n_solved, cell.n), 2)}, {cell.accuracy:.2f}")
        rows.append([str(d), *texts])
    return rows


def _figure(cells: Cells, mixings: list[str], T: int) -> Figure:
    ds, ps = _widths(cells)
    figure = Figure(figsize=(3.4 * len(mixings) + 1, 3.2), layout="constrained", dpi=160)
    panels = figure.subplots(1, len(mixings), squeeze=False)[0]
    for panel, mixing in zip(panels, mixings, strict=True):
        share_DP = np.array([[cells[mixing, d, p].n_solved / cells[mixing, d, p].n for p in ps] for d in ds])
        image = panel.imshow(share_DP, origin="lower", vmin=0, vmax=1, cmap="viridis", aspect="auto")
        panel.set(title=mixing, xlabel="hidden width p", ylabel="embedding width d")
        panel.set_xticks(range(len(ps)), [str(p) for p in ps])
        panel.set_yticks(range(len(ds)), [str(d) for d in ds])
        panel.axvline(np.searchsorted(ps, T) - 0.5, color="white")
        panel.axhline(np.searchsorted(ds, T) - 0.5, color="white")
    figure.colorbar(image, ax=panels, label="share solved")
    return figure
