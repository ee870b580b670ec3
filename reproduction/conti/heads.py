"""Figures 1 and 2 of Conti 2024: the attention of trained translators, with 1 head per layer and with 8."""

from collections import Counter
from pathlib import Path

from attnsweep.orchestrator.inspection.heads import Head, Heads, heads_of
from attnsweep.orchestrator.inspection.heads_figure import heads_figure
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, TextTable, save_figure, value_row

_SENTENCE = 9
"""The number of the test sentence on which the heads' attention is drawn."""


def compare(sweep: SweepDirectory, directory: Path, sentence: int = _SENTENCE) -> Comparison:
    """Each translator is trained again, for its attention on one test sentence."""
    rows = sorted(Ledger(sweep.place).trainings().to_pylist(), key=lambda row: int(row["param_n_heads"]))
    translators = [heads_of(sweep, row["training_id"], sentence) for row in rows]
    figures = [
        path
        for number, heads in enumerate(translators, 1)
        for path in save_figure(heads_figure(heads), directory, f"conti-fig{number}")
    ]
    return Comparison(
        title="conti-heads: what the heads of a trained translator look at, with 1 head a layer and with 8",
        source="Conti 2024, Figures 1 and 2",
        rows=[_row(heads, layer.number) for heads in translators for layer in heads.maps.layers],
        tables=[_table(heads) for heads in translators],
        figures=figures,
        notes=[
            f"Drawn: test sentence {sentence}. Figure 1 is the translator with 1 head a layer, Figure 2 that with 8.",
            "The thesis's translators are larger (d_model 512 to our 64) and learn English and Italian books; ours"
            " learn a grammar. Roles are pooled over 500 sentences; the nearest structure is that of the one drawn.",
        ],
    )


def _row(translator: Heads, layer: int) -> ComparedValue:
    heads = [head for head in translator.heads if head.layer == layer]
    n_heads = f"{len(heads)} head" + "s" * (len(heads) > 1)
    roles = Counter((head.role or "not scored").replace("_", " ") for head in heads)
    is_published = len(heads) > 1 and translator.layer_names[layer] == "encoder_self"
    ours = ", ".join(f"{role} {n}" for role, n in roles.most_common())
    published = "positional, syntactic, rare words" if is_published else None
    return value_row(f"{n_heads}, {translator.layer_names[layer]}: roles", ours, published)


def _table(translator: Heads) -> TextTable:
    n_heads = len(translator.heads) // len(translator.maps.layers)
    rows = [["layer", "head", "role", "nearest", "z", *_SHOWN]]
    rows += [_cells(translator, head) for head in translator.heads]
    return f"{n_heads} head" + "s" * (n_heads > 1), rows


_SHOWN = ("positional_share", "syntactic_gain", "rare_token", "alignment")


def _cells(translator: Heads, head: Head) -> list[str]:
    near = head.structure
    nearest = ["-", "-"] if near is None or near.family == "none" else [near.label, f"{near.z[near.family]:.1f}"]
    scores = [f"{head.scores[name]:.2f}" if name in head.scores else "-" for name in _SHOWN]
    return [translator.layer_names[head.layer], str(head.head), (head.role or "-").replace("_", " "), *nearest, *scores]
