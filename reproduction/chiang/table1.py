"""Table 1 of Chiang & Cholak 2022 at a small scale: translators trained on short sentences, tested on long ones."""

from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import mean_difference_row, mean_interval, mean_row
from attnsweep.reproduction.swept import swept

_CELLS = {("all", "all"): ("32.6", "32.5"), ("short", "long"): ("11.4", "12.4")}
"""Published BLEU of the baseline and of log-length scaling, by the sentences trained on and tested on."""
_SCALES = {"inv_sqrt_d": "baseline", "log_n_inv_sqrt_d": "scaled"}

Scores = dict[tuple[str, str, str], list[float]]
"""One value per seed, by the sentences trained on, attention scale and metric."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 2 sets of sentences x 2 scales x 20 seeds."""
    return compare(swept("translation_lengths", directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws it."""
    scores = _read(sweep)
    rows: list[ComparedValue] = []
    for (trained, tested), published in _CELLS.items():
        for scale, value in zip(_SCALES, published, strict=True):
            name = f"BLEU, {trained}/{tested}, {_SCALES[scale]}"
            rows.append(
                mean_row(name, scores[trained, scale, f"bleu_{tested}"], published=value, possible=(0.0, 100.0))
            )
    for name, metric, claim in (("BLEU", "bleu", "+1.0"), ("cross-entropy (nats)", "cross_entropy", None)):
        scaled, baseline = (scores["short", scale, f"{metric}_long"] for scale in ("log_n_inv_sqrt_d", "inv_sqrt_d"))
        rows.append(
            mean_difference_row(f"short/long: scaled above baseline, {name}", scaled, baseline, published=claim)
        )
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
    rows = (
        Ledger(sweep.place)
        .connect()
        .execute(
            """
        select param_train_on, param_attention_scale, metric, value
        from curves join trainings using (training_id)
        where step = n_steps and metric in ('bleu_all', 'bleu_long', 'cross_entropy_long') and outcome != 'diverged'
        order by training_id
        """
        )
    )
    scores: Scores = defaultdict(list)
    for trained, scale, metric, value in rows.fetchall():
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
        axis.set_xlabel("trained on, attention")
        axis.set_ylabel(label)
    return figure
