"""docs/problems/markov_chains.md: when attention goes from uniform to unigrams and to bigrams, and by which heads."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import median_row, ratio_row, share_row
from attnsweep.reproduction.trained import one_thread, queried, swept, trained
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine.judging import first_held
from attnsweep.workloads.field.markov_chains import MARKOV_CHAINS

_EVENTS = """
select param_chains, coalesce(event_unigram, 'inf'::double), coalesce(event_bigram, 'inf'::double),
    bool_or(layer = 0 and role = 'previous_token'), bool_or(layer = 1 and role = 'induction')
from trainings join heads using (training_id)
where step = n_steps and outcome not in ('failed', 'diverged')
group by training_id, param_chains, event_unigram, event_bigram order by all
"""
_CURVES = """
select metric, step, median(value) from curves join trainings using (training_id)
where metric like 'from_%' and param_chains = 'any' group by all order by all
"""
_COLOURS = {"from_uniform": "#999999", "from_unigram": "#0072B2", "from_bigram": "#D55E00"}
"""Okabe & Ito 2008."""
_SHORTER, _SHORTER_STEPS = 16, 800
"""The other context, and the steps in which nearly all trainings get to bigrams there."""


class Stages(NamedTuple):
    """When a training came nearest to each strategy, infinite where it did not, and whether heads took their roles."""

    unigram: float
    bigram: float
    has_previous: bool
    has_induction: bool


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads the finished sweep, and trains 64 seeds on a shorter context."""
    stages = stages_of(sweep)
    length = int(queried(sweep, "select max(param_n_context) from trainings")[0][0])
    return Comparison(
        title="edelman-markov: in-context Markov chains, uniform, unigram and bigram stages",
        source="Edelman, Edelman, Goel, Malach & Tsilivis 2024, arXiv 2402.11004",
        rows=[*stage_rows(stages), *head_rows(stages), *_length_rows(stages["any"], length)],
        figures=save_figure(_figure(sweep, length), directory, "markov_chains"),
        notes=[
            "A stage begins at the first probe at which the model is nearer to its strategy than to the others, by the "
            "mean KL(strategy || model) on held-out sequences. Medians and ratios are of trainings that got there.",
        ],
    )


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """At the settings of the authors' repository: 2 states, 100 tokens, batches of 64, 2,000 steps."""
    published = {"n_states": 2, "n_context": 100, "batch_size": 64, "learning_rate": 5e-4, "n_steps": 2000}
    spec = load_sweep("markov_chains").fix(published)
    return compare(swept("markov_chains", directory, console, "auto", changed=spec), directory)


def stages_of(sweep: SweepDirectory) -> Mapping[str, Sequence[Stages]]:
    """The stages of all trainings, by the kind of chain."""
    found: dict[str, list[Stages]] = {}
    for chains, *stages in queried(sweep, _EVENTS):
        found.setdefault(chains, []).append(Stages(*stages))
    return found


def stage_rows(stages: Mapping[str, Sequence[Stages]]) -> Iterator[ComparedValue]:
    """In which order stages come, and when."""
    any_chain, doubly = stages["any"], stages["doubly_stochastic"]
    yield share_row(
        "any chains: unigrams before bigrams",
        sum(each.unigram < each.bigram for each in any_chain),
        len(any_chain),
        published="all",
        agrees_within=(0.9, 1.0),
    )
    yield median_row("any chains: steps to unigrams", _steps(any_chain, "unigram"), published=None)
    for name, cell in (("any", any_chain), ("doubly stochastic", doubly)):
        came = _steps(cell, "bigram")
        yield share_row(f"{name} chains: bigrams within n_steps", len(came), len(cell))
        if came:
            yield median_row(f"{name} chains: steps to bigrams", came, published=None)
    yield ratio_row(
        "steps to bigrams, doubly stochastic over any",
        _steps(doubly, "bigram"),
        _steps(any_chain, "bigram"),
        published="below 1",
        agrees_within=(0.0, 0.999),
    )


def head_rows(stages: Mapping[str, Sequence[Stages]]) -> Iterator[ComparedValue]:
    """Which heads have their roles at the end."""
    for chains, cell in stages.items():
        came = [each for each in cell if each.bigram < float("inf")]
        for name, block in (("previous", "first"), ("induction", "second")) if came else ():
            yield share_row(
                f"{chains}: {name} head in the {block} block, of trainings that got to bigrams",
                sum(getattr(each, f"has_{name}") for each in came),
                len(came),
                published="all",
                agrees_within=(0.9, 1.0),
            )


def _length_rows(longer: Sequence[Stages], length: int) -> Iterator[ComparedValue]:
    with one_thread():
        shorter = trained(MARKOV_CHAINS(), range(64), {"n_context": _SHORTER, "n_steps": _SHORTER_STEPS})
    first = first_held(MARKOV_CHAINS(), shorter.parameters, shorter.evidence, shorter.result.last_probe)["bigram"]
    steps = np.asarray(shorter.evidence.steps[first[first >= 0]], np.float64).tolist()
    yield share_row(f"{_SHORTER} tokens: bigrams within {_SHORTER_STEPS} steps", len(steps), len(first))
    yield median_row(f"{_SHORTER} tokens: steps to bigrams", steps, published=None)
    square = (length / _SHORTER) ** 2
    yield ratio_row(
        f"steps to bigrams, {length} tokens over {_SHORTER}",
        _steps(longer, "bigram"),
        steps,
        published=f"{square:g}, the square, for another task (2511.01033)",
        agrees_within=(square**0.75, square**1.25),
    )


def _steps(stages: Sequence[Stages], name: str) -> list[float]:
    """Of those that got there, after their start."""
    return [step for each in stages if 0 < (step := getattr(each, name)) < float("inf")]


def _figure(sweep: SweepDirectory, length: int) -> Figure:
    figure = Figure(figsize=(4, 3), layout="constrained")
    panel = figure.subplots()
    for metric, colour in _COLOURS.items():
        points = [(step, value) for name, step, value in queried(sweep, _CURVES) if name == metric]
        panel.plot(*zip(*points, strict=True), color=colour, label=metric.removeprefix("from_"))
    framed(panel, xlabel="step", ylabel="KL(strategy || model), median", title=f"any chains, {length} tokens")
    panel.legend(frameon=False)
    return figure
