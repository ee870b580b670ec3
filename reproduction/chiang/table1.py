"""Table 1 of Chiang & Cholak 2022: translators trained on short sentences, tested on long ones.

It is reproduced at a small scale, and on the user's own parallel text, with the paper's test of significance.

Source: Koehn 2004, "Statistical significance tests for machine translation evaluation" (paired bootstrap).
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import mean_difference_row, mean_interval, mean_row
from attnsweep.reproduction.trained import queried, swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.translation.writing import Written, write

_CELLS = {("all", "all"): ("32.6", "32.5"), ("short", "long"): ("11.4", "12.4")}
"""The published BLEU of the baseline and of log-length scaling, by the sentences trained on and tested on."""
_SCALES = {"inv_sqrt_d": "baseline", "log_n_inv_sqrt_d": "scaled"}
_SCORES = """
select param_train_on, param_attention_scale, metric, value from curves join trainings using (training_id)
where step = n_steps and metric in ('bleu_all', 'bleu_long', 'cross_entropy_long') and outcome != 'diverged'
order by training_id
"""

Scores = dict[tuple[str, str, str], list[float]]
"""One value per seed, by the sentences trained on, attention scale and metric."""


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the BLEU scores of a finished sweep of translators with table 1 of the paper, and draws them."""
    scores = _read(sweep)
    rows: list[ComparedValue] = []
    for (trained, tested), published in _CELLS.items():
        for scale, value in zip(_SCALES, published, strict=True):
            name, bleu = f"BLEU, {trained}/{tested}, {_SCALES[scale]}", scores[trained, scale, f"bleu_{tested}"]
            rows.append(mean_row(name, bleu, published=value, possible=(0.0, 100.0)))
    for name, metric, claim in (("BLEU", "bleu", "+1.0"), ("cross-entropy (nats)", "cross_entropy", None)):
        scaled, baseline = (scores["short", scale, f"{metric}_long"] for scale in ("log_n_inv_sqrt_d", "inv_sqrt_d"))
        row = f"short/long: scaled above baseline, {name}"
        rows.append(mean_difference_row(row, scaled, baseline, published=claim))
    return Comparison(
        title="chiang-table1: trained on short sentences, tested on long ones",
        source="Chiang & Cholak 2022, section 6, Table 1",
        rows=rows,
        figures=save_figure(_draw(scores), directory, "chiang-table1"),
        notes=[
            "Published: English to Vietnamese, BLEU of one training each. Ours: sentences of a grammar, translators of "
            "one block, means over seeds. BLEU cannot be compared between the two; the sign of a difference can.",
            "Short: no longer than the median source of the training sentences. A translator trained on short "
            "sentences sees half of the sentences, each twice as often.",
            "The published difference for all/all is -0.1, which is none.",
        ],
    )


def _read(sweep: SweepDirectory) -> Scores:
    scores: Scores = defaultdict(list)
    for trained, scale, metric, value in queried(sweep, _SCORES):
        scores[trained, scale, metric].append(value)
    return scores


def _draw(scores: Scores) -> Figure:
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, metric, label in (
        (axes[0], "bleu_long", "BLEU on long sentences"),
        (axes[1], "cross_entropy_long", "cross-entropy on long sentences\n(nats per token)"),
    ):
        ticks = []
        for place, (trained, scale) in enumerate((trained, scale) for trained in ("all", "short") for scale in _SCALES):
            values = scores[trained, scale, metric]
            mean, low, high = mean_interval(values)
            axis.plot([place] * len(values), values, "o", color="#0072B2", alpha=0.25, markersize=4, linestyle="none")
            axis.errorbar(place, mean, [[mean - low], [high - mean]], fmt="_", color="black", capsize=4, markersize=14)
            ticks.append(f"{trained}\n{_SCALES[scale]}")
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set(xlabel="trained on, attention", ylabel=label)
    return figure


N_REPLICATES = 4
N_RESAMPLES = 1000
_MEDIAN = """
select training_id from trainings join curves using (training_id)
where param_train_on = 'short' and param_attention_scale = ? and metric = 'bleu_long' and outcome != 'diverged'
qualify curves.step = max(curves.step) over ()
order by value limit 1 offset (
    select count(*) // 2 from trainings where param_train_on = 'short' and param_attention_scale = ?
    and outcome != 'diverged'
)
"""


def reproduce_corpus(directory: Path, console: Console, corpus: str) -> Comparison:
    """Trains translators on a corpus that the user has prepared, and compares their BLEU scores with the paper. They
    train on all sentences or on the short ones only, with 2 attention scales and 4 seeds.
    """
    shipped = load_sweep("translation_lengths")
    spec = shipped.fix({"corpus": corpus}).but(replicates=N_REPLICATES)
    return compare_corpus(swept(shipped.name, directory, console, changed=spec), directory, console)


def compare_corpus(sweep: SweepDirectory, directory: Path, console: Console) -> Comparison:
    """Compares a finished sweep of translators on a prepared corpus with table 1 of the paper. Trains two of the
    translators again, to compare their translations of the same sentences.
    """
    comparison = compare(sweep, directory)
    console.print("training two translators again, for their translations of the long sentences")
    baseline, scaled = (_long(sweep, scale) for scale in ("inv_sqrt_d", "log_n_inv_sqrt_d"))
    return Comparison(
        title=comparison.title,
        source=comparison.source,
        rows=[*comparison.rows, paired_bootstrap(baseline, scaled)],
        figures=comparison.figures,
        notes=[
            f"Ours: translators of one block on {sweep.spec.fixed()['corpus']}, {sweep.spec.replicates} seeds a cell. "
            "BLEU counts the words of the prepared text, so that it compares trainings on this text only.",
            "Paired bootstrap: the training of median BLEU of each scale, the same long sentences drawn again with "
            f"repetition, {N_RESAMPLES:,} times. It knows nothing of other seeds; the row above does.",
        ],
    )


def paired_bootstrap(baseline: Written, scaled: Written) -> ComparedValue:
    """Compares the BLEU scores of two translators. Returns a row with the score of the second minus that of the first,
    and its interval from bootstrap samples of the sentences.

    Args:
        baseline, scaled: Translations of the same sentences, in the same order.
    """
    from sacrebleu.metrics.bleu import BLEU

    # `effective_order` prevents a warning of sacrebleu about each sentence. Only the counts of n-grams are used, and
    # `effective_order` does not change these.
    metric = BLEU(tokenize="none", force=True, effective_order=True)
    counts = [_counts(metric, written) for written in (baseline, scaled)]
    n = len(baseline.references)
    drawn = np.random.default_rng(0).integers(n, size=(N_RESAMPLES, n))
    differences = np.array([_difference(metric, counts, rows) for rows in drawn])
    low, high = np.quantile(differences, [0.025, 0.975])
    ours = _difference(metric, counts, np.arange(n))
    return ComparedValue(
        name="short/long: scaled above baseline, BLEU, paired bootstrap of two trainings",
        published="+1.0 (p < 0.05)",
        ours=ours,
        low=min(float(low), ours),
        high=max(float(high), ours),
        agrees=bool(low > 0),
    )


def _long(sweep: SweepDirectory, scale: str) -> Written:
    """Returns translations of the long test sentences."""
    [(training_id,)] = queried(sweep, _MEDIAN, scale, scale)
    lanes, state = ended_lanes(sweep, [training_id])
    [sets] = write(lanes, state)
    return next(written for written in sets if written.name == "long")


def _counts(metric: Any, written: Written) -> NDArray[np.float64]:
    lines = [
        metric.sentence_score(hypothesis, [reference])
        for hypothesis, reference in zip(written.hypotheses, written.references, strict=True)
    ]
    return np.array([[line.sys_len, line.ref_len, *line.counts, *line.totals] for line in lines], dtype=np.float64)


def _difference(metric: Any, counts: Sequence[NDArray[np.float64]], rows: NDArray[np.int64]) -> float:
    baseline, scaled = (_bleu(metric, own_counts[rows].sum(0)) for own_counts in counts)
    return scaled - baseline


def _bleu(metric: Any, sums: NDArray[np.float64]) -> float:
    sys_len, ref_len, *ngrams = sums.astype(int).tolist()
    half = len(ngrams) // 2
    return float(metric.compute_bleu(ngrams[:half], ngrams[half:], sys_len, ref_len, smooth_method="exp").score)
