"""Studies of docs/translation.md: which roles attention heads of translators take, what restricted attention changes,
which settings lead to positional heads, and whether the labels find a positional head that is made on purpose.

Axes: L lane, H head, B sentence, Q query, K key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import cast

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate
from attnsweep.orchestrator.analysis.role_emergence import RoleEmergence, role_emergence
from attnsweep.orchestrator.analysis.role_results import RoleRatesBy, role_rates, role_rates_by
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import (
    mean_difference_row,
    mean_interval,
    mean_row,
    rate_row,
    rate_text,
    share_row,
    value_row,
)
from attnsweep.reproduction.trained import one_thread, queried, trained
from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.translation import Translation
from attnsweep.workloads.translation.head_scores import looked_at
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.translator import LAYERS
from attnsweep.workloads.vocabulary import ROLES

_FEWEST = 10
"""The rate of a role is split by parameter only if at least this number of trainings has the role."""


def compare_heads(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports how many attention heads take each role in a finished sweep of translators, and draws at which steps the
    roles emerge.
    """
    with Ledger(sweep.place).connect() as connection:
        emergences = role_emergence(connection, sweep.spec)
        rates = role_rates(connection, sweep.spec)
        by_parameter = role_rates_by(connection, sweep.spec)
    steps = {(emergence.layer, emergence.role): emergence.median_step for emergence in emergences}
    table = [["role", "layer", "trainings", "heads", "median step of emergence"]]
    rows = []
    for role in rates:
        assert role.layer is not None
        step = steps[role.layer, role.role]
        shown = "-" if step is None else f"{step:.0f}"
        table.append([role.role, LAYERS[role.layer], rate_text(role.rate, 2), f"{role.head_share:.1%}", shown])
        rows.append(rate_row(f"trainings with a {role.role} head, {LAYERS[role.layer]}", role.rate))
    return Comparison(
        title="Which roles the heads of small translators take, and when",
        source="attnsweep, docs/translation.md",
        rows=rows,
        tables=[("At the end of training", table), ("By parameter", _by_parameter(by_parameter))],
        figures=save_figure(_emergence_figure(emergences), directory, "head_roles"),
        notes=["Intervals count the trainings of one trial as dependent."],
    )


def _by_parameter(roles: Sequence[RoleRatesBy]) -> list[list[str]]:
    lines = [["role", "layer", "parameter", "bin", "trainings"]]
    for role in roles:
        if role.layer is None or sum(part.rate.k for part in role.by_parameter[0].bins) < _FEWEST:
            continue
        for parameter in role.by_parameter:
            where = [role.role, LAYERS[role.layer], parameter.title]
            lines += [[*where, part.label, rate_text(part.rate, 2)] for part in parameter.bins if part.n_trials]
    return lines


def _emergence_figure(emergences: Sequence[RoleEmergence]) -> Figure:
    figure = Figure(figsize=(9.0, 2.8), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(LAYERS), sharey=True)
    for emergence in emergences:
        assert emergence.layer is not None
        panel, colour = panels[emergence.layer], ROLES[emergence.role].colour
        # A logarithmic axis has no place for step 0, so values at step 0 are drawn at step 10.
        steps = [max(point.step, 10) for point in emergence.curve]
        shares = [point.share for point in emergence.curve]
        panel.plot(steps, shares, color=colour, marker="o", markersize=3, label=emergence.role)
        low, high = [point.low for point in emergence.curve], [point.high for point in emergence.curve]
        panel.fill_between(steps, low, high, color=colour, alpha=0.15)
    for panel, name in zip(panels, LAYERS, strict=True):
        panel.set(xscale="log", xlabel="step", title=name.replace("_", " "))
    panels[0].set_ylabel("share of trainings")
    panels[0].legend(frameon=False)
    return figure


_COLUMN_COLOURS = {0: "#000000", 1: "#0072B2", 2: "#D55E00", 4: "#009E73"}
"""The colour by number of rare-token columns (keys that every query may see), from Okabe & Ito 2008."""
_LOSSES = "select param_window, param_num_pos, eval_loss from trainings order by training_id"

Losses = Mapping[tuple[int, int], Sequence[float]]
"""Held-out losses by attention window and number of rare-token columns (keys that every query may see)."""


def compare_structure(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the losses of translators with restricted attention and with full attention in a finished sweep, and
    draws them.
    """
    losses: dict[tuple[int, int], list[float]] = {}
    full: list[float] = []
    for window, num_pos, loss in queried(sweep, _LOSSES):
        (full if window is None else losses.setdefault((window, num_pos), [])).append(loss)
    return Comparison(
        title="How small may the structure of attention be?",
        source="attnsweep, docs/translation.md",
        rows=[
            mean_row(f"held-out nats per token, full attention, mean of {len(full)}", full),
            *(_difference(window, num_pos, losses[window, num_pos], full) for window, num_pos in sorted(losses)),
        ],
        figures=save_figure(_structure_figure(losses, full), directory, "attention_structure"),
        notes=["Rows of a window: nats per token above full attention, Welch's interval."],
    )


def _difference(window: int, num_pos: int, values: Sequence[float], full: Sequence[float]) -> ComparedValue:
    return mean_difference_row(f"window {window}, num_pos {num_pos}: above full attention", values, full)


def _structure_figure(losses: Losses, full: Sequence[float]) -> Figure:
    windows, columns = (sorted({key[axis] for key in losses}) for axis in (0, 1))
    figure = Figure(figsize=(5.2, 3.4), layout="constrained", dpi=150)
    panel = figure.subplots()
    mean, low, high = mean_interval(full)
    panel.axhspan(low, high, color="0.8")
    panel.axhline(mean, color="0.4", linewidth=1, label="all tokens")
    for shift, num_pos in enumerate(columns):
        intervals = [mean_interval(losses[window, num_pos]) for window in windows]
        panel.errorbar(
            [place + 0.08 * (shift - 1.5) for place in range(len(windows))],
            [mean for mean, _, _ in intervals],
            [[mean - low for mean, low, _ in intervals], [high - mean for mean, _, high in intervals]],
            color=_COLUMN_COLOURS[num_pos],
            marker="o",
            markersize=4,
            linewidth=1,
            capsize=3,
            label=f"{num_pos} rare-token columns",
        )
    panel.set_xticks(range(len(windows)), [str(window) for window in windows])
    panel.set(xlabel="window $w$ (tokens to either side)", ylabel="held-out cross-entropy (nats per token)")
    panel.legend(frameon=False)
    return figure


_BY_SETTING = """
with ends as (
    select training_id, role, layer, score_positional_share as share
    from heads join trainings using (training_id)
    where outcome not in ('failed', 'diverged') qualify step = max(step) over (partition by training_id)
), nearest as (
    select training_id, bool_or(role = 'positional') as has, max(share) as share, arg_max(layer, share) as layer
    from ends group by 1
)
select param_d_model, param_n_heads, param_n_epochs, param_learning_rate, param_dropout,
    count(*), count(*) filter (has), max(share), arg_max(layer, share)
from nearest join trainings using (training_id) group by all order by all
"""


def compare_positional(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports for each combination of swept values how many translators have a positional attention head. The sweep may
    be unfinished.
    """
    del directory
    rows: list[ComparedValue] = []
    for width, n_heads, n_epochs, rate, dropout, n, k, nearest, layer in queried(sweep, _BY_SETTING):
        name = f"width {width}, {n_heads} heads, {n_epochs} passes, rate {rate:g}, dropout {dropout:g}"
        rows.append(share_row(f"{name}: trainings with a positional head", k, n))
        rows.append(value_row(f"  most queries at one offset, of any head ({LAYERS[layer]})", nearest))
    return Comparison(
        title="Do larger, longer or dropped-out translators get positional heads?",
        source="attnsweep, docs/translation.md",
        rows=rows,
        notes=[
            "At the end of training. A head is positional if its strongest key is at one offset for 90% of queries."
        ],
    )


PLANTED = {"encoder_self": (-1, 0, 1), "decoder_self": (-1, 0)}
"""The offsets to which attention is moved, by layer; the decoder sees nothing after its own position."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The settings of `reproduce_power`: how many translation models are trained, and how much of each query's
    attention is then moved, as a test, to the key at a fixed distance from the query.

    Attributes:
        n_trainings: The number of translators, which have the workload's default parameters.
        first_seed: The first of their seeds.
        n_epochs: Passes over the 5,000 sentences.
        masses: The shares of each query's attention that are moved to the offset.
        n_sentences: Held-out sentences on which heads are judged.
    """

    n_trainings: int = 32
    first_seed: int = 0
    n_epochs: int = 2
    masses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    n_sentences: int = 200


FULL_SIZE = Size()


def reproduce_power(directory: Path, console: Console, size: Size = FULL_SIZE) -> Comparison:
    """Tests whether positional heads would be found: moves a share of the attention of trained translators to the key
    at one fixed distance from each query, and counts the heads that are then labelled positional.
    """
    del directory
    console.print(f"training {size.n_trainings} translators")
    with one_thread():
        parts = list(_trained(size))
        rows = [row for mass in size.masses for row in _labelled_rows(parts, mass)]
    return Comparison(
        title="Would a positional head be found?",
        source="attnsweep, docs/translation.md",
        rows=rows,
        notes=[
            "A share of each head's attention is moved to one offset (where the sentence has a key there); the rest of "
            "its attention stays. Heads of one training are no independent trials: the intervals are over trainings."
        ],
    )


Part = tuple[str, Tensor, Sentences]
"""A layer, the attention (n_trainings, n_heads, n_sentences, n_queries, n_keys) of all heads in it, and the sentences
of one bucket."""


def _trained(size: Size) -> Iterator[Part]:
    workload = Translation()
    values = {"n_epochs": size.n_epochs, "head_sentences": size.n_sentences, "test_sentences": 0}
    ended = trained(workload, range(size.first_seed, size.first_seed + size.n_trainings), values)
    lanes, state = ended.pack.final_state(np.arange(size.n_trainings))
    template = workload.build(lanes.shared)
    parameters, buffers = parted(template, state)
    attend = over_lanes(template, lambda module, batch: cast(TranslationModel, module).attention(batch))
    for part in looked_at(lanes.shared, lanes.device):
        batch = {name: value.expand(size.n_trainings, *value.shape) for name, value in part.batch.items()}
        with torch.no_grad():
            attention = attend(parameters, buffers, batch)
        for layer in PLANTED:
            yield layer, attention[layer].transpose(1, 2), part.sentences[layer]


def _labelled_rows(parts: list[Part], mass: float) -> Iterator[ComparedValue]:
    for layer, offsets in PLANTED.items():
        labels = np.concatenate([_labels(parts, layer, offset, mass) for offset in offsets], axis=1)
        is_found = labels == "positional"
        rate = pooled_rate([(lane.size, int(lane.sum())) for lane in is_found])
        yield rate_row(f"{layer}, share {mass:g} of the attention planted: labelled positional", rate)


def _labels(parts: list[Part], layer: str, offset: int, mass: float) -> NDArray[np.str_]:
    """Returns which role each attention head of a layer has, (n_trainings, n_heads), after a share of the attention of
    every query was moved to the key at the given offset from the query.
    """
    counts = [
        count_roles(planted(attention, sentences, offset, mass), sentences)
        for part_layer, attention, sentences in parts
        if part_layer == layer
    ]
    return label_roles(role_scores(reduce(add, counts)))


def planted(attention_LHBQK: Tensor, sentences: Sentences, offset: int, mass: float) -> Tensor:
    """Returns the attention weights after a share of each query's attention was moved to the key at one offset from it.
    Queries that may not see that key keep their weights.
    """
    Q, K = attention_LHBQK.shape[-2:]
    at_offset_QK = torch.arange(K) - torch.arange(Q).unsqueeze(1) == offset
    aim_BQK = (at_offset_QK & sentences.allowed()).to(attention_LHBQK.dtype)
    share_BQ1 = mass * aim_BQK.sum(-1, keepdim=True)
    return (1 - share_BQ1) * attention_LHBQK + share_BQ1 * aim_BQK
