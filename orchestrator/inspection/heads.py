"""What the heads of a training attend to at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, json_line
from attnsweep.orchestrator.inspection.head import Head, heads_of_layer
from attnsweep.orchestrator.inspection.heads_figure import heads_figure
from attnsweep.orchestrator.inspection.kept_weights import ends_of
from attnsweep.orchestrator.inspection.recorded import ended_training
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps
from attnsweep.workloads.lenses import head_maps, lenses_of
from attnsweep.workloads.user_code import users_code

_EXPECTED, _FIX = "a workload whose heads can be looked at", "see attnsweep.check_workload"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Heads(DrawnAnswer):
    """All heads of one training at its end: maps on one sentence, roles, scores, nearest structures.

    Attributes:
        layer_names: The names of its layers; a layer without a name is shown by its number.
        note: Empty, or why the maps may not be those of the recorded training.
    """

    row: Mapping[str, Any]
    maps: SentenceMaps
    layer_names: tuple[str, ...]
    heads: tuple[Head, ...]
    note: str

    @property
    def name(self) -> str:
        """TRIAL/REPLICATE."""
        return f"{self.row['trial']}/{self.row['replicate']}"

    def layer_title(self, layer: int) -> str:
        """`layer N` if it has no name."""
        return self.layer_names[layer] if layer < len(self.layer_names) else f"layer {layer}"

    def of_layer(self, layer: LayerMaps) -> list[Head]:
        return [head for head in self.heads if head.layer == layer.number]

    def _in_words(self) -> str:
        return f"{self.name} {self.row['outcome']}, sentence {self.maps.number}: {self.maps.text}"

    def to_arrow(self) -> pa.Table:
        """A row for each head: role, scores, structure."""
        rows = []
        for head in self.heads:
            near = head.structure
            z = None if near is None else near.z.get(near.family)
            place = {"layer": head.layer, "layer_name": self.layer_title(head.layer), "head": head.head}
            nearest = {"role": head.role, "nearest": None if near is None else near.label, "z": z}
            rows.append(place | nearest | {f"score_{name}": value for name, value in head.scores.items()})
        names = list(dict.fromkeys(name for row in rows for name in row))
        return pa.table({name: [row.get(name) for row in rows] for name in names})

    def _shown(self) -> pa.Table:
        return self.to_arrow().select(["layer_name", "head", "role", "nearest", "z"])

    def plot(self) -> Figure:
        """The maps, with the tokens beside them."""
        title = f"{self.name}: {self.maps.text}"
        return heads_figure(
            title, [(self.layer_title(layer.number), layer, self.of_layer(layer)) for layer in self.maps.layers]
        )

    def to_json(self) -> str:
        """One line, for scripts."""
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail")
        layers = [
            {
                "layer": layer.number,
                "name": self.layer_title(layer.number),
                "queries": layer.queries,
                "keys": layer.keys,
                "heads": [
                    {
                        "head": head.head,
                        "role": head.role,
                        "scores": head.scores,
                        "structure": head.structure,
                        "weights": head.weights_QK.tolist(),
                    }
                    for head in self.of_layer(layer)
                ],
            }
            for layer in self.maps.layers
        ]
        sentence = {"number": self.maps.number, "of": self.maps.n_sentences, "text": self.maps.text}
        return json_line(
            {name: self.row[name] for name in names} | {"sentence": sentence, "layers": layers, "note": self.note}
        )


def trained_heads(directory: PlaceName, training: str, sentence: int | None = None) -> Heads:
    """Returns the heads of a training at its end: maps on one sentence, roles, scores, nearest structures.

    Args:
        training: `TRIAL/REPLICATE`, a `training_id` or its beginning.
        sentence: The number of the held-out sentence; by default one of median length.

    Raises:
        UserError: If there is no such training or sentence, the training did not end with finite weights or has no
            heads, or the sweep's code fails.
    """
    return heads_of(SweepDirectory.open(directory), training, sentence)


def heads_of(directory: SweepDirectory, name: str, sentence: int | None = None) -> Heads:
    """As `trained_heads`."""
    workload = load_workload_of(directory)
    row, rows, training = ended_training(directory, workload, name, "from trainings where outcome = 'solved'")
    # `looked_at` raises an error if the model has no attention heads, or the data have no such sentence. Therefore it
    # is called first, without trained weights: `ends_of` repeats the training, which takes long.
    looked_at(workload, training, {}, sentence)
    (end,) = ends_of(directory, [row["training_id"]])
    maps = looked_at(workload, training, end.state, sentence)
    return joined(workload, row, maps, [] if rows.heads is None else rows.heads.to_pylist(), end.difference)


def looked_at(
    workload: Workload[Any], training: Training[Any], state: State, sentence: int | None = None
) -> SentenceMaps:
    with training_settings(), users_code(workload.name, _EXPECTED, _FIX):
        return head_maps(workload, training, state, sentence)


def joined(
    workload: Workload[Any],
    row: Mapping[str, Any],
    maps: SentenceMaps,
    scored: Sequence[Mapping[str, Any]],
    note: str = "",
) -> Heads:
    """Joins maps with the roles and scores that were recorded last."""
    last = max((scores["step"] for scores in scored), default=None)
    at_last = {(scores["layer"], scores["head"]): scores for scores in scored if scores["step"] == last}
    heads = tuple(head for layer in maps.layers for head in heads_of_layer(layer, at_last))
    return Heads(row=row, maps=maps, layer_names=lenses_of(workload).layer_names, heads=heads, note=note)
