"""What the heads of a training attend to at its end: maps on one sentence, roles, scores, and the family of matrices
that each map is nearest to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.console import Console
from torch import Tensor

from attnsweep.orchestrator.analysis.tables import show, to_json
from attnsweep.orchestrator.inspection.kept_weights import ends_of
from attnsweep.orchestrator.inspection.recorded import ended_training
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.diagnostics.matrices import MatrixScores, score_matrices
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps
from attnsweep.workloads.lenses import head_maps, lenses_of
from attnsweep.workloads.user_code import users_code
from attnsweep.workloads.vocabulary import ROLES

_MIN_TOKENS = 3
"""With two tokens every map is near to all structures."""
_NEARER_THAN_CHANCE = -2.0
_FIX = "see attnsweep.check_workload"
_DECIDING_SCORES = tuple(f"score_{role.score}" for role in ROLES.values() if role.score)
_MAX_SCORES = 5
_LEGEND = """\
scores: at the last probe, as the ledger has them (all of them: --json). nearest: the structure of docs/heads.md
that the map is nearest to in z, its distance in standard deviations of shuffled rows; none: no z below -2.
distance: the exact one to it per token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """The family of matrices that an attention map is nearest to.

    Attributes:
        family: `S1` (identity), `S2` (band) or `S3` (blocks), see docs/heads.md; `none` if no family is nearer than
            chance.
        window, num_pos: The width w and the number p of blocks for which the distances are computed.
        distance: The exact one per token, by family.
        z: How far that is from the mean over shuffled rows, in their standard deviations, by family.
        starts: The first rows of the blocks of the nearest member of S3, which are also the columns they attend.
    """

    family: str
    window: int
    num_pos: int
    distance: Mapping[str, float]
    z: Mapping[str, float]
    starts: tuple[int, ...]

    @property
    def label(self) -> str:
        """Such as `S3(4, 2)`."""
        arguments = {"S2": f"({self.window})", "S3": f"({self.window}, {self.num_pos})"}
        return self.family + arguments.get(self.family, "")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Head:
    """One head, numbered as in the ledger.

    Attributes:
        role: At the last probe; `None` if heads were not scored.
        scores: At the last probe, by name.
        structure: The nearest; `None` if the map is not a square matrix of shares, or of fewer than three tokens.
    """

    layer: int
    head: int
    role: str | None
    scores: Mapping[str, float]
    structure: Structure | None
    weights_QK: Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Heads:
    """All heads of one training at its end.

    Attributes:
        row: Of `trainings`.
        layer_names: By number.
        note: Empty, or why the maps may not be those of the recorded training.
    """

    row: Mapping[str, Any]
    maps: SentenceMaps
    layer_names: Mapping[int, str]
    heads: tuple[Head, ...]
    note: str

    @property
    def name(self) -> str:
        """TRIAL/REPLICATE."""
        return f"{self.row['trial']}/{self.row['replicate']}"

    def of_layer(self, layer: LayerMaps) -> list[Head]:
        return [head for head in self.heads if head.layer == layer.number]

    def to_arrow(self) -> pa.Table:
        """A row for each head: role, scores, structure."""
        rows = []
        for head in self.heads:
            nearest = head.structure
            rows.append(
                {"layer": head.layer, "layer_name": self.layer_names[head.layer], "head": head.head, "role": head.role}
                | {"nearest": nearest and nearest.label, "distance": nearest and nearest.distance.get(nearest.family)}
                | {"z": nearest and nearest.z.get(nearest.family)}
                | {f"score_{name}": value for name, value in head.scores.items()}
            )
        names = list(dict.fromkeys(name for row in rows for name in row))
        return pa.table({name: [row.get(name) for row in rows] for name in names})

    def print(self, console: Console) -> None:
        row, table = self.row, self.to_arrow().drop_columns("layer")
        detail = f" ({row['outcome_detail']})" if row["outcome_detail"] else ""
        title = f"{self.name}  {row['outcome']}{detail}; sentence {self.maps.number} of {self.maps.n_sentences}:"
        for line in filter(None, (title, self.maps.text, self.note)):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        scores = [name for name in table.column_names if name.startswith("score_")]
        left_out = sorted(scores, key=lambda name: name not in _DECIDING_SCORES)[_MAX_SCORES:]
        show(table.drop_columns(left_out), console)
        console.print(_LEGEND, soft_wrap=True, markup=False, highlight=False)

    def to_json(self) -> str:
        """One line."""
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail")
        layers = [
            {
                "layer": layer.number,
                "name": self.layer_names[layer.number],
                "queries": layer.queries,
                "keys": layer.keys,
                "heads": [
                    {name: getattr(head, name) for name in ("head", "role", "scores", "structure")}
                    | {"weights": head.weights_QK.tolist()}
                    for head in self.of_layer(layer)
                ],
            }
            for layer in self.maps.layers
        ]
        sentence = {"number": self.maps.number, "of": self.maps.n_sentences, "text": self.maps.text}
        return to_json(
            {name: self.row[name] for name in names} | {"sentence": sentence, "layers": layers, "note": self.note}
        )


def trained_heads(directory: PlaceName, training: str, sentence: int | None = None) -> Heads:
    """The heads of a training at its end. It is trained again if its weights were not kept.

    Args:
        training: `TRIAL/REPLICATE`, a `training_id` or its beginning.
        sentence: The number of the held-out sentence; by default the first, a translator's first of median length.
    """
    return heads_of(SweepDirectory.open(directory), training, sentence)


def heads_of(directory: SweepDirectory, name: str, sentence: int | None = None) -> Heads:
    """As `trained_heads`."""
    workload = load_workload_of(directory)
    row, rows, training = ended_training(directory, workload, name, "from trainings where outcome = 'solved'")

    def maps_with(state: State) -> SentenceMaps:
        with training_settings(), users_code(workload.name, "a workload whose heads can be looked at", _FIX):
            return head_maps(workload, training, state, sentence)

    # First without trained weights, to refuse a model without heads or a sentence that does not exist.
    maps_with({})
    (end,) = ends_of(directory, [row["training_id"]])
    maps = maps_with(end.state)
    scored = [] if rows.heads is None else rows.heads.to_pylist()
    last = max((scores["step"] for scores in scored), default=None)
    at_last = {(scores["layer"], scores["head"]): scores for scores in scored if scores["step"] == last}
    names = lenses_of(workload).layer_names
    numbers = [layer.number for layer in maps.layers]
    return Heads(
        row=row,
        maps=maps,
        layer_names={number: names[number] if number < len(names) else f"layer {number}" for number in numbers},
        heads=tuple(head for layer in maps.layers for head in _heads_of_layer(layer, at_last)),
        note=end.difference,
    )


def _heads_of_layer(layer: LayerMaps, scored: Mapping[tuple[int, int], Mapping[str, Any]]) -> list[Head]:
    """`scored`: rows of `heads` at the last probe, by layer and head."""
    structures = _structures(layer)
    heads = []
    for index, weights_QK in enumerate(layer.weights_HQK):
        row = scored.get((layer.number, index), {})
        scores = {name.removeprefix("score_"): value for name, value in row.items() if name.startswith("score_")}
        heads.append(
            Head(
                layer=layer.number,
                head=index,
                role=row.get("role"),
                scores={name: value for name, value in scores.items() if value is not None},
                structure=structures[index],
                weights_QK=weights_QK,
            )
        )
    return heads


def _structures(layer: LayerMaps) -> list[Structure | None]:
    weights_HQK = layer.weights_HQK
    is_share = bool((weights_HQK >= 0).all())
    if not layer.is_square or not is_share or len(layer.keys) < _MIN_TOKENS:
        return [None] * len(weights_HQK)
    is_causal = not bool(weights_HQK.triu(1).any())
    scored = score_matrices(weights_HQK, is_causal=is_causal)
    return [_structure(scored, head, len(layer.keys)) for head in range(len(weights_HQK))]


def _structure(scored: MatrixScores, head: int, n_tokens: int) -> Structure:
    families = {"S1": "sigma_1", "S2": "sigma_2", "S3": "sigma_3"}
    z = {family: float(scored.scores[f"{name}_z"][head]) for family, name in families.items()}
    # Where the entries of each row are equal, all shuffles equal the map, and its z-scores are not finite.
    known = {family: value for family, value in z.items() if math.isfinite(value)}
    nearest = min(known, key=lambda family: known[family], default="none")
    return Structure(
        family=nearest if known.get(nearest, 0.0) < _NEARER_THAN_CHANCE else "none",
        window=int(scored.window[head]),
        num_pos=int(scored.num_pos[head]),
        distance={family: float(scored.scores[name][head]) / n_tokens for family, name in families.items()},
        z=known,
        starts=scored.starts[head],
    )
