"""Conti 2024, tables 6 and 7: the distances of eight attention matrices from families of structured matrices (diagonal,
banded, in blocks), found by random draws and computed exactly.

The draws are those of the thesis (its notebook Attn_approx): random members of Sigma_1, Sigma_2, Sigma_3. A draw is
P + E with its rows normalized. E has T entries at distinct random places, U[0, 1) times `coeff_sp`, and a zero
diagonal. Two properties of the notebook are easy to miss: the noise of Sigma_3 is always multiplied by 0.5, and
`coeff_v`, the third coefficient of the grid, is never used, so each cell is drawn 11 times. We draw uniformly among all
placements of disjoint blocks; the notebook redraws until blocks are disjoint, which need not end.

Axes: D draw, H head, T token.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor

from attnsweep.reproduction.comparison import Comparison, TextTable, save_figure, value_row
from attnsweep.reproduction.figures import HeatMap, draw_heat_maps
from attnsweep.workloads.diagnostics.matrices import permutation_test
from attnsweep.workloads.diagnostics.structure import (
    band_support,
    best_blocks,
    blocks_with_free_entries,
    checked_attention,
    distances_to_bands,
    distances_to_blocks,
    distances_to_diagonal,
    support_with_free_entries,
)
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import UserError

COEFFICIENTS = tuple(round(0.1 * step, 1) for step in range(11))
N_DRAWS = 30
FIXED_COEFF_SP = 0.5
_KEEP = 0.6
_LOW, _HIGH = 0.7, 1.0


@dataclass(frozen=True, slots=True)
class Draws:
    """Those of one family with one coefficient.

    Attributes:
        family: `sigma_1` (diagonal), `sigma_2` (banded) or `sigma_3` (in blocks).
        coefficient: The factor of the noise, `coeff_sp`, or for Sigma_3 that of the matrix without noise, `coeff_d`.
        matrices: (n_draws, n_tokens, n_tokens); rows of zeros are NaN, as in the notebook.
    """

    family: str
    coefficient: float
    matrices: Tensor


def draw_families(T: int, window: int, num_pos: int, *, n_draws: int = N_DRAWS, seed: int = 0) -> Iterator[Draws]:
    """The draws of the thesis's grid search, for each family and each value of its coefficient."""
    streams = Streams(torch.tensor([seed]))
    # The grid has all combinations of three coefficients, but a family depends on one of them alone.
    D = n_draws * len(COEFFICIENTS) ** 2
    for step, coefficient in enumerate(COEFFICIENTS):
        noise = _noise(streams, D, T, step) * coefficient
        values = streams.uniform("conti.diagonal", (D, T), step)[0]
        yield Draws("sigma_1", coefficient, _normalised(torch.diag_embed(1.0 - 0.1 * values) + noise))
        band = _band(streams, D, T, window, step)
        noise = _noise(streams, D, T, step + len(COEFFICIENTS)) * coefficient
        yield Draws("sigma_2", coefficient, _normalised(band + noise))
        blocks = coefficient * _blocks(streams, D, T, window, num_pos, step)
        noise = _noise(streams, D, T, step + 2 * len(COEFFICIENTS)) * FIXED_COEFF_SP
        yield Draws("sigma_3", coefficient, _normalised(blocks + noise))


def _noise(streams: Streams, D: int, T: int, step: int) -> Tensor:
    places = streams.uniform("conti.places", (D, T * T), step)[0].topk(T, dim=1).indices
    values = streams.uniform("conti.values", (D, T), step)[0]
    noise = torch.zeros(D, T * T, dtype=torch.float64).scatter(1, places, values).view(D, T, T)
    return noise * (1.0 - torch.eye(T, dtype=torch.float64))


def _band(streams: Streams, D: int, T: int, window: int, step: int) -> Tensor:
    position = torch.arange(T)
    inside = (position - position.unsqueeze(1)).abs() <= window
    kept = streams.uniform("conti.kept", (D, T, T), step)[0] < _KEEP
    return _between(streams.uniform("conti.band", (D, T, T), step)[0]) * (inside & kept)


def _blocks(streams: Streams, D: int, T: int, window: int, num_pos: int, step: int) -> Tensor:
    values = _between(streams.uniform("conti.rows", (D, T), step)[0])
    # A block counts as one place, as a single row does. `num_pos` distinct places are drawn to be the blocks, so blocks
    # never overlap, and every arrangement of disjoint blocks is equally likely.
    n_places = T - num_pos * (window - 1)
    places = streams.uniform("conti.starts", (D, n_places), step)[0].topk(num_pos, dim=1).indices.sort(1).values
    starts = places + (window - 1) * torch.arange(num_pos)
    row = torch.arange(T)
    column = row.expand(D, T)
    for start in starts.unbind(1):
        within = (row >= start.unsqueeze(1)) & (row < start.unsqueeze(1) + window)
        column = torch.where(within, start.unsqueeze(1), column)
    return torch.zeros(D, T, T, dtype=torch.float64).scatter(2, column.unsqueeze(2), values.unsqueeze(2))


def _between(draw: Tensor) -> Tensor:
    return _LOW + (_HIGH - _LOW) * draw


def _normalised(matrices: Tensor) -> Tensor:
    return matrices / matrices.sum(-1, keepdim=True)


VARIABLE = "ATTNSWEEP_THESIS_HEADS"
PLACES = (Path("thesis_heads.npy"), Path("../shared/data/thesis_heads.npy"))
TOLERANCE = 1.0
"""Our value agrees with the published one up to this distance: that is the extreme of one unseeded run of random
draws."""
N_RUNS = 5
_SHAPE = (8, 16, 16)
_FAMILIES = {"sigma_1": "S1", "sigma_2": "S2", "sigma_3": "S3"}


@dataclass(frozen=True, slots=True)
class PublishedTable:
    number: int
    window: int
    num_pos: int
    distances: tuple[float, ...]


TABLE_6 = PublishedTable(6, 3, 2, (17.229, 15.749, 21.084, 18.796, 16.913, 17.232, 18.121, 18.711))
TABLE_7 = PublishedTable(7, 10, 1, (22.584, 20.904, 20.631, 19.964, 21.001, 22.181, 21.397, 21.169))


def load_heads() -> Tensor:
    """The thesis's attention, (n_heads, n_tokens, n_tokens) in float64; rows do not sum to 1."""
    named = os.environ.get(VARIABLE)
    path = next((place for place in ([Path(named)] if named else PLACES) if place.is_file()), None)
    if path is None:
        expected = "the path of the file with the attention heads of Conti's thesis, by default ./thesis_heads.npy"
        fix = (
            "cut the matrices of matrix_list.pkl in github.com/EddieConti/Master-Thesis-UB to 16 x 16; numpy.save them"
        )
        raise UserError(VARIABLE, given=named, expected=expected, fix=fix)
    try:
        heads = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        expected, fix = "an array in NumPy's .npy format", "write the array with numpy.save"
        raise UserError(VARIABLE, given=str(path), expected=expected, fix=fix) from error
    if not isinstance(heads, np.ndarray) or heads.shape != _SHAPE:
        given = f"shape {heads.shape}" if isinstance(heads, np.ndarray) else str(path)
        raise UserError(VARIABLE, given=given, expected=f"an array of the shape {_SHAPE}", fix=f"check the file {path}")
    return checked_attention(heads, any_row_sum=True, subject=str(path))


@dataclass(frozen=True, slots=True)
class SampledDistances:
    """The smallest distance in each run, (n_runs, H), and the family of the nearest draw in the first run."""

    distance: Tensor
    family: tuple[str, ...]


def sample_distances(heads: Tensor, window: int, num_pos: int, *, n_runs: int, n_draws: int) -> SampledDistances:
    families = list(_FAMILIES)
    runs = []
    for seed in range(n_runs):
        best = torch.full((len(families), len(heads)), torch.inf, dtype=torch.float64)
        for draws in draw_families(heads.shape[-1], window, num_pos, n_draws=n_draws, seed=seed):
            # A draw with a row of zeros is NaN: never the nearest.
            distance = torch.cdist(heads.flatten(1), draws.matrices.flatten(1), p=1).nan_to_num(torch.inf)
            family_best = best[families.index(draws.family)]
            torch.minimum(family_best, distance.min(1).values, out=family_best)
        runs.append(best)
    nearest = runs[0].argmin(0)
    return SampledDistances(torch.stack([run.amin(0) for run in runs]), tuple(families[index] for index in nearest))


def reproduce_table(
    table: PublishedTable, directory: Path, console: Console, *, n_runs: int = N_RUNS, n_draws: int = N_DRAWS
) -> Comparison:
    """`n_draws` are drawn of each family with each combination of coefficients in the thesis's grid."""
    heads = load_heads()
    with training_settings():
        console.print(f"drawing from the families, {n_runs} runs; then the exact distances")
        figure = blocks_figure(heads, table.window, table.num_pos)
        figures = save_figure(figure, directory, f"conti-table{table.number}")
        return compare(table, heads, figures, n_runs=n_runs, n_draws=n_draws)


reproduce_table_6, reproduce_table_7 = (partial(reproduce_table, table) for table in (TABLE_6, TABLE_7))


def compare(table: PublishedTable, heads: Tensor, figures: Sequence[Path], *, n_runs: int, n_draws: int) -> Comparison:
    w, p, T = table.window, table.num_pos, heads.shape[-1]
    sampled = sample_distances(heads, w, p, n_runs=n_runs, n_draws=n_draws)
    ours = sampled.distance.median(0).values.tolist()
    exact = exact_distances(heads, w, p)
    rows = []
    for head, (drawn, published) in enumerate(zip(ours, table.distances, strict=True), 1):
        agrees = abs(drawn - published) <= TOLERANCE
        rows.append(value_row(f"head {head}: by random draws", drawn, published, agrees=agrees))
    for head, (nearest, published) in enumerate(zip(exact["nearest"].tolist(), table.distances, strict=True), 1):
        rows.append(value_row(f"head {head}: exact optimum", nearest, published))
    return Comparison(
        title=f"Least distances of eight heads to structured families, w = {w}, num_pos = {p}",
        source=f"Conti 2024, table {table.number}",
        rows=rows,
        figures=figures,
        tables=[
            _sampled_table(sampled),
            _exact_table(exact, w, p, T),
            _mean_error_table(table, ours, exact, T),
            _best_table(heads),
        ],
        notes=[
            "Table 6 is w = 3, num_pos = 2; table 7 is w = 10, num_pos = 1.",
            f"By random draws: the median of {n_runs} runs, each with {n_draws} draws for each family and each of the "
            "11^3 cells of the grid (one of its three coefficients has no effect). It agrees if it is within "
            f"{TOLERANCE:g} of the published value, which is the extreme of one unseeded run.",
            "Exact optimum: the least distance to the three families as sets (rows >= 0 that sum to 1), plus E with at "
            f"most {T} entries anywhere, as many as the draws have. No draw can be nearer.",
            "The heads were captured with dropout on. Rows sum to 0.23-1.11, and a row of sum r is at least |r - 1| "
            f"away from every member ({(heads.sum(-1) - 1).abs().sum(-1).mean():.2f} per head on average).",
            "Without E, S1 and S3(w, p) are subsets of S2(w), so S2 being nearest says nothing about a head's role. "
            "The exact distance to S2 falls with w; draws of wider bands are farther because of their noise.",
        ],
    )


def exact_distances(heads: Tensor, window: int, num_pos: int) -> dict[str, Tensor]:
    """(H,) by family. In one named `... + E`, as many entries as there are tokens may have any value anywhere;
    `nearest` is the smallest of the distances from these."""
    T = heads.shape[-1]
    distances = {
        "S1": distances_to_diagonal(heads),
        "S2": distances_to_bands(heads)[..., window],
        "S3": distances_to_blocks(heads)[..., window - 1, num_pos],
        "S1 + E": support_with_free_entries(heads, band_support(T, 0), T)[..., -1],
        "S2 + E": support_with_free_entries(heads, band_support(T, window), T)[..., -1],
        "S3 + E": blocks_with_free_entries(heads, window, num_pos, T)[..., -1],
    }
    nearest = torch.stack([distances["S1 + E"], distances["S2 + E"], distances["S3 + E"]]).amin(0)
    return distances | {"nearest": nearest}


def blocks_figure(heads: Tensor, window: int, num_pos: int) -> Figure:
    """Each head's attention, with dots where its nearest block-structured matrix is not 0."""
    best, T = best_blocks(heads, window, num_pos), heads.shape[-1]
    maps = []
    for number, head in enumerate(heads):
        column_of = list(range(T))
        for start in best.starts[number].tolist():
            column_of[start : start + window] = [start] * window
        title = f"head {number + 1}: distance {best.distance[number].item():.2f}"
        axes = {"title": title, "xlabel": "key", "ylabel": "query"}
        maps.append(HeatMap(values=head.numpy(), marks=list(enumerate(column_of)), axes=axes))
    return draw_heat_maps([maps[:4], maps[4:]])


def _sampled_table(sampled: SampledDistances) -> TextTable:
    runs = sampled.distance
    statistics = zip(*(row.tolist() for row in (runs.amin(0), runs.median(0).values, runs.amax(0))), strict=True)
    rows = [
        [str(head), *(f"{distance:.2f}" for distance in distances), _FAMILIES[family]]
        for head, (distances, family) in enumerate(zip(statistics, sampled.family, strict=True), 1)
    ]
    title = f"By random draws, {len(runs)} runs"
    return title, [["head", "least", "median", "largest", "nearest draw is of"], *rows]


def _exact_table(exact: dict[str, Tensor], w: int, p: int, T: int) -> TextTable:
    names = [name for name in exact if name != "nearest"]
    rows = [[str(head + 1), *(f"{exact[name][head]:.2f}" for name in names)] for head in range(len(exact["S1"]))]
    return f"Exact distances: S2({w}), S3({w}, {p}), E of {T} entries", [["head", *names], *rows]


def _mean_error_table(table: PublishedTable, ours: list[float], exact: dict[str, Tensor], T: int) -> TextTable:
    names = [name for name in exact if name != "nearest"]
    distances = zip(table.distances, ours, *(exact[name].tolist() for name in names), strict=True)
    rows = [
        [str(head), *(f"{distance / T**2:.4f}" for distance in columns)] for head, columns in enumerate(distances, 1)
    ]
    return f"Mean error per entry: distance / {T**2}", [["head", "published", "drawn", *names], *rows]


def _best_table(heads: Tensor) -> TextTable:
    T = heads.shape[-1]
    is_block = torch.arange(1, T + 1).unsqueeze(1) * torch.ones(T + 1) > 1
    is_block[:, 0] = False

    def nearest(matrices: Tensor) -> Tensor:
        return distances_to_blocks(matrices).masked_fill(~is_block, torch.inf).flatten(-2).amin(-1)

    chosen = distances_to_blocks(heads).masked_fill(~is_block, torch.inf).flatten(1).argmin(1)
    test = permutation_test(heads, nearest)
    diagonal = permutation_test(heads, distances_to_diagonal)
    z = zip(chosen.tolist(), test.distance, test.z, diagonal.z, strict=True)
    rows = [
        [str(head), f"{best // (T + 1) + 1}, {best % (T + 1)}", f"{distance:.2f}", f"{z_s3:.1f}", f"{z_s1:.1f}"]
        for head, (best, distance, z_s3, z_s1) in enumerate(z, 1)
    ]
    title = "Best w and p of S3, exact; z against shuffled rows (below -2: nearer than chance)"
    return title, [["head", "w, p", "S3(w, p)", "z", "z of S1"], *rows]
