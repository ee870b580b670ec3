"""What the heads of a training look at where it ended: attention maps, roles, scores, and the nearest structures."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from attnsweep.orchestrator.inspection.kept_weights import kept_weights
from attnsweep.orchestrator.inspection.replay import find_training, recorded_rows, recorded_tasks, retrain_checked
from attnsweep.orchestrator.inspection.why import WITHOUT_END
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.diagnostics.matrices import MatrixScores, score_matrices
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps, head_maps
from attnsweep.workloads.user_code import users_code

_EXPECTED, _FIX = "a workload whose heads can be looked at", "see attnsweep.check_workload"
_FEWEST_TOKENS = 3
"""Of a matrix that is compared with structures: with two tokens all are near."""
_NEARER_THAN_CHANCE = -2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """The family of matrices that a head's map is nearest to, relative to shuffles of the map's rows.

    Attributes:
        family: `S1`, `S2` or `S3` of docs/roles.md; `none` if no family is nearer than chance.
        window, num_pos: The w and p at which the distances are taken.
        distance, z: By family: the exact distance per token, and the same in standard deviations of the shuffles.
        blocks: (first row, column) of each block of the nearest member of S3.
    """

    family: str
    window: int
    num_pos: int
    distance: Mapping[str, float]
    z: Mapping[str, float]
    blocks: tuple[tuple[int, int], ...]

    @property
    def label(self) -> str:
        """Such as `S3(4, 1)`."""
        arguments = {"S2": f"({self.window})", "S3": f"({self.window}, {self.num_pos})"}
        return self.family + arguments.get(self.family, "")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Head:
    """One head.

    Attributes:
        layer, head: Its place, as the ledger counts.
        role: At the last probe; `None` if heads were not scored.
        scores: At the last probe, by name, without those that the layer does not have.
        structure: `None` where the map is no square matrix of shares.
        weights_QK: Its map.
    """

    layer: int
    head: int
    role: str | None
    scores: Mapping[str, float]
    structure: Structure | None
    weights_QK: Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Heads:
    """All heads of one training.

    Attributes:
        row: The training's row of `trainings`.
        maps: Its maps with their tokens.
        layer_names: The names of its layers; a layer beyond them is shown by its number.
        heads: All heads, layer by layer.
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
        """A layer as tables name it."""
        return self.layer_names[layer] if layer < len(self.layer_names) else f"layer {layer}"

    def of_layer(self, layer: LayerMaps) -> list[Head]:
        """The heads of one layer."""
        return [each for each in self.heads if each.layer == layer.number]

    def to_json(self) -> str:
        """One line of JSON, for scripts."""
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail")
        content = {
            **{name: self.row[name] for name in names},
            "sentence": {"number": self.maps.number, "of": self.maps.n_sentences, "text": self.maps.text},
            "layers": [
                {
                    "layer": layer.number,
                    "name": self.layer_title(layer.number),
                    "queries": layer.queries,
                    "keys": layer.keys,
                    "heads": [
                        {
                            "head": each.head,
                            "role": each.role,
                            "scores": each.scores,
                            "structure": None if each.structure is None else asdict(each.structure),
                            "weights": each.weights_QK.tolist(),
                        }
                        for each in self.of_layer(layer)
                    ],
                }
                for layer in self.maps.layers
            ],
            "note": self.note,
        }
        return json.dumps(content, allow_nan=False)


def heads_of(directory: SweepDirectory, name: str, sentence: int | None = None) -> Heads:
    """The heads of a training where it ended. It is trained again, unless its weights were kept.

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        sentence: The sentence's number; by default `head_maps` chooses.

    Raises:
        UserError: If there is no such training or sentence, the training has no end to look at or no heads, or the
            user's code fails.
    """
    workload, ledger = load_workload_of(directory), Ledger(directory.place)
    recorded = recorded_rows(ledger, [find_training(ledger, name)])
    (row,) = recorded.trainings.to_pylist()
    if not has_end(row):
        raise UserError(
            "TRAINING_ID",
            given=f"{name}, which ended as {row['outcome']}",
            expected="a training whose last weights are finite",
            fix="see: attnsweep query DIR \"from trainings where outcome = 'solved'\"",
        )
    (task,) = recorded_tasks(workload, recorded.trainings)
    # Before it is trained again: a model without heads, or a sentence that is not there, is refused at once.
    looked_at(workload, task.training, {}, sentence)
    state, note = kept_weights(directory, row["training_id"]), ""
    if state is None:
        state, deviation = retrain_checked(directory, row["training_id"])
        if not deviation.agrees:
            note = f"trained again it ends otherwise than recorded ({', '.join(deviation.disagreements())})"
    maps = looked_at(workload, task.training, state, sentence)
    return joined(workload, row, maps, [] if recorded.heads is None else recorded.heads.to_pylist(), note)


def has_end(row: Mapping[str, Any]) -> bool:
    """Whether a training, by its row of `trainings`, ended with weights to look at."""
    return row["outcome"] not in WITHOUT_END and row["diverged_step"] is None


def looked_at(
    workload: Workload[Any], training: Training[Any], state: State, sentence: int | None = None
) -> SentenceMaps:
    """`head_maps` in a process's settings for training; what a user's code raises becomes a `UserError`."""
    with training_settings(), users_code(workload.name, _EXPECTED, _FIX):
        return head_maps(workload, training, state, sentence)


def joined(
    workload: Workload[Any],
    row: Mapping[str, Any],
    maps: SentenceMaps,
    scored: Sequence[Mapping[str, Any]],
    note: str = "",
) -> Heads:
    """The maps of a training with its roles and scores.

    Args:
        workload: Names the layers.
        row: The training's row of `trainings`.
        maps: Its maps.
        scored: Its rows of `heads`.
        note: As in `Heads`.
    """
    last = max((each["step"] for each in scored), default=None)
    found = {(each["layer"], each["head"]): each for each in scored if each["step"] == last}
    heads = tuple(head for layer in maps.layers for head in _heads(layer, found))
    return Heads(row=row, maps=maps, layer_names=workload.head_layer_names, heads=heads, note=note)


def _heads(layer: LayerMaps, scored: Mapping[tuple[int, int], Mapping[str, Any]]) -> list[Head]:
    structures = _structures(layer)
    found = []
    for at, weights_QK in enumerate(layer.weights_HQK):
        row = scored.get((layer.number, at), {})
        scores = {name.removeprefix("score_"): value for name, value in row.items() if name.startswith("score_")}
        found.append(
            Head(
                layer=layer.number,
                head=at,
                role=row.get("role"),
                scores={name: value for name, value in scores.items() if value is not None},
                structure=structures[at],
                weights_QK=weights_QK,
            )
        )
    return found


def _structures(layer: LayerMaps) -> list[Structure | None]:
    weights_HQK = layer.weights_HQK
    is_share = bool((weights_HQK >= 0).all())
    if not layer.is_square or not is_share or len(layer.keys) < _FEWEST_TOKENS:
        return [None] * len(weights_HQK)
    is_causal = not bool(weights_HQK.triu(1).any())
    scored = score_matrices(weights_HQK, is_causal=is_causal)
    return [_structure(scored, at, len(layer.keys)) for at in range(len(weights_HQK))]


def _structure(scored: MatrixScores, at: int, n_tokens: int) -> Structure:
    families = {"S1": "sigma_1", "S2": "sigma_2", "S3": "sigma_3"}
    z = {family: float(scored.scores[f"{name}_z"][at]) for family, name in families.items()}
    # A map whose rows are uniform is its own shuffle.
    known = {family: value for family, value in z.items() if math.isfinite(value)}
    nearest = min(known, key=lambda family: known[family], default="none")
    return Structure(
        family=nearest if known.get(nearest, 0.0) < _NEARER_THAN_CHANCE else "none",
        window=int(scored.window[at]),
        num_pos=int(scored.num_pos[at]),
        distance={family: float(scored.scores[name][at]) / n_tokens for family, name in families.items()},
        z=known,
        blocks=tuple(zip(scored.starts[at], scored.columns[at], strict=True)),
    )
