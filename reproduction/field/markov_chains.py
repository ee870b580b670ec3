"""In-context Markov chains (docs/problems/markov_chains.md): when a transformer's predictions pass from uniform to the
frequencies of states (unigrams) and then of pairs of states (bigrams), and which heads do it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import median_row, ratio_row, share_row, value_row
from attnsweep.reproduction.trained import one_thread, queried, swept, trained
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine.judging import first_held
from attnsweep.workloads.field.markov_chains import MARKOV_CHAINS
from attnsweep.workloads.parameters import Value

_EVENTS = """
select param_n_states, param_chains, coalesce(event_unigram, 'inf'::double), coalesce(event_bigram, 'inf'::double),
    bool_or(layer = 0 and role = 'previous_token'), bool_or(layer = 1 and role = 'induction')
from trainings join heads using (training_id)
where step = n_steps and outcome not in ('failed', 'diverged')
group by training_id, param_n_states, param_chains, event_unigram, event_bigram order by all
"""
_CURVES = """
select metric, step, median(value) from curves join trainings using (training_id)
where metric like 'from_%' and param_chains = 'any' and param_n_states = ? group by all order by all
"""
_COLOURS = {"from_uniform": "#999999", "from_unigram": "#0072B2", "from_bigram": "#D55E00"}
"""The colours of the curves, from Okabe & Ito 2008."""
_SHORTER, _SHORTER_STEPS = 16, 800
"""The shorter context, in tokens, and the steps of its trainings."""
_KNOWN_SHARE = 0.7
"""The median step of reaching bigrams is reported only if at least this share of trainings reaches them: with 64
trainings, the median's interval is then known."""


class Stages(NamedTuple):
    """When the predictions of a training come nearest to each of two strategies, unigram and bigram: the first step at
    which they are nearer to this strategy than to any other. Also whether the model has an attention head for the
    previous token and an induction head.

    A step is infinite if the predictions are never nearest to the strategy.
    """

    unigram: float
    bigram: float
    has_previous: bool
    has_induction: bool


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares a finished sweep of in-context Markov chains with the paper, and trains 64 further seeds on shorter
    sequences.
    """
    stages = stages_of(sweep)
    most, ((length,),) = max(stages), queried(sweep, "select distinct param_n_context from trainings")
    rows = [row for n_states, cells in stages.items() for row in rows_of(cells, n_states)]
    return Comparison(
        title="edelman-markov: in-context Markov chains, uniform, unigram and bigram stages",
        source="Edelman, Edelman, Goel, Malach & Tsilivis 2024, arXiv 2402.11004",
        rows=[*rows, *_length_rows(stages[most]["any"], length, most)],
        figures=save_figure(_figure(sweep, most), directory, "markov_chains"),
        notes=[
            "A stage begins at the first probe at which the model is nearer to its strategy than to the others, by the "
            "mean KL(strategy || model) on held-out sequences. Medians count trainings that do not get there as later, "
            "ratios leave them out.",
        ],
    )


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """Repeats the sweep with the settings of the authors' repository: 100 tokens, batches of 64, 2,000 steps."""
    published = {"n_context": 100, "batch_size": 64, "learning_rate": 5e-4, "n_steps": 2000}
    spec = load_sweep("markov_chains").fix(published)
    return compare(swept("markov_chains", directory, console, "auto", changed=spec), directory)


def stages_of(sweep: SweepDirectory) -> Mapping[int, Mapping[str, Sequence[Stages]]]:
    """Returns when each training began to predict by the frequencies of states (unigram) and of pairs of states
    (bigram), and whether its attention heads have the expected roles. The trainings are grouped by number of states,
    then by the kind of Markov chain (any or doubly stochastic).
    """
    stages_by_cell: dict[int, dict[str, list[Stages]]] = {}
    for n_states, chains, *stages in queried(sweep, _EVENTS):
        stages_by_cell.setdefault(n_states, {}).setdefault(chains, []).append(Stages(*stages))
    return stages_by_cell


def rows_of(cells: Mapping[str, Sequence[Stages]], n_states: int) -> Iterator[ComparedValue]:
    """Compares with the paper the order and the steps of the learning stages (uniform, unigram, bigram), and which
    roles the attention heads have at the end.
    """
    any_chain, doubly = cells["any"], cells["doubly_stochastic"]
    yield share_row(
        f"{n_states} states, any: unigrams before bigrams",
        sum(training.unigram < training.bigram for training in any_chain),
        len(any_chain),
        published="all",
        agrees_within=(0.9, 1.0),
    )
    unigram_steps = [training.unigram for training in any_chain]
    yield median_row(f"{n_states} states, any: steps to unigrams", unigram_steps, published=None)
    for chains, cell in cells.items():
        yield from _bigram_rows(f"{n_states} states, {chains}", [training.bigram for training in cell])
    yield ratio_row(
        f"{n_states} states: steps to bigrams, doubly_stochastic over any",
        _steps(doubly, "bigram"),
        _steps(any_chain, "bigram"),
        published="below 1",
        agrees_within=(0.0, 0.999),
    )
    # With two states, half of all keys come after a token that equals the query. So even a head that attends to all
    # keys alike has the induction score 0.5, and the score does not tell which heads do induction. Therefore heads are
    # counted only with more states.
    for name, block in (("previous", "first"), ("induction", "second")) if n_states > 2 else ():
        reached = [training for training in any_chain if training.bigram < float("inf")]
        yield share_row(
            f"{n_states} states, any: {name} head in the {block} block, where bigrams came",
            sum(getattr(training, f"has_{name}") for training in reached),
            len(reached),
            published="all",
            agrees_within=(0.85, 1.0),
        )


def _length_rows(longer: Sequence[Stages], length: int, n_states: int) -> Iterator[ComparedValue]:
    values: dict[str, Value] = {"n_states": n_states, "n_context": _SHORTER, "n_steps": _SHORTER_STEPS}
    with one_thread():
        result = trained(MARKOV_CHAINS(), range(64), values)
    first = first_held(MARKOV_CHAINS(), result.parameters, result.evidence, result.result.last_probe)["bigram"]
    shorter = np.where(first >= 0, result.evidence.steps[np.maximum(first, 0)], np.inf).tolist()
    yield from _bigram_rows(f"{n_states} states, any, {_SHORTER} tokens", shorter)
    ratio, square = np.median([training.bigram for training in longer]) / np.median(shorter), (length / _SHORTER) ** 2
    yield value_row(
        f"{n_states} states, any: median steps to bigrams, {length} tokens over {_SHORTER}",
        float(ratio) if np.isfinite(ratio) else "unknown",
        f"{square:g}, the square, for another task (2511.01033)",
        agrees=bool(square**0.75 < ratio < square**1.25),
    )


def _bigram_rows(name: str, steps: Sequence[float]) -> Iterator[ComparedValue]:
    n_reached = int(np.isfinite(steps).sum())
    yield share_row(f"{name}: bigrams within n_steps", n_reached, len(steps))
    if n_reached >= _KNOWN_SHARE * len(steps):
        yield median_row(f"{name}: steps to bigrams", steps, published=None)


def _steps(stages: Sequence[Stages], name: str) -> list[float]:
    return [step for training in stages if 0 < (step := getattr(training, name)) < float("inf")]


def _figure(sweep: SweepDirectory, n_states: int) -> Figure:
    figure = Figure(figsize=(4, 3), layout="constrained")
    panel = figure.subplots()
    for metric, colour in _COLOURS.items():
        points = [(step, value) for name, step, value in queried(sweep, _CURVES, n_states) if name == metric]
        panel.plot(*zip(*points, strict=True), color=colour, label=metric.removeprefix("from_"))
    framed(panel, xlabel="step", ylabel="KL(strategy || model), median", title=f"any chains, {n_states} states")
    panel.legend(frameon=False)
    return figure
