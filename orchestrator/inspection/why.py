"""Analyses why a training is stuck where it ended: the terms of which its gradients are sums ("words"), its attention,
and whether it will leave."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attnsweep.orchestrator.analysis.answer import json_line
from attnsweep.orchestrator.inspection.kept_weights import ends_of
from attnsweep.orchestrator.inspection.recorded import ended_training
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.forecast.prediction import predicted_escapes
from attnsweep.workloads.identities.equations import KeyBias, NoGradient
from attnsweep.workloads.lenses import batch_of, gradient_words, loss_of
from attnsweep.workloads.user_code import users_code
from attnsweep.workloads.words.saddle import Saddle, saddle_of
from attnsweep.workloads.words.terms import GradientWords

_EXPECTED, _FIX = "a workload that trains", "see attnsweep.check_workload"


@dataclass(frozen=True, kw_only=True)
class Why:
    """The analysis of why a training is stuck at its end.

    Attributes:
        sweep: The directory, as the user named it.
        row: The training's row of `trainings`.
        training: The training's parameters and seed.
        difference: Empty, or how the end of the repeated training differs from the recorded one: the words are then
            those of the repeated training.
        words: The words of the training's gradients at its end: the terms of which the gradients are sums.
        saddle: The direction in which the loss curves down most; `None` unless the words of some part of the target are
            small (the part is starved) and the loss has second derivatives.
        curve: The training's `eval_loss` at its probes, as (step, value).
        predicted_escape: The step at which the training leaves its start, by a formula for starts of this kind; `None`
            without such a formula, infinite if it never leaves.
        null: The parameters on which, as the workload declares, the loss does not depend.
    """

    sweep: str
    row: Mapping[str, Any]
    training: Training[Any]
    difference: str
    words: GradientWords
    saddle: Saddle | None
    curve: Sequence[tuple[int, float]]
    predicted_escape: float | None
    null: Sequence[str]

    @property
    def name(self) -> str:
        """The name TRIAL/REPLICATE of the training."""
        return f"{self.row['trial']}/{self.row['replicate']}"

    @property
    def replay_command(self) -> str:
        """The shell command that repeats the training."""
        return f"attnsweep replay {as_argument(self.sweep)} {self.name}"

    def to_json(self) -> str:
        """Returns the analysis as one line of JSON, for scripts. Numbers that are not finite become null."""
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail", "certificate", "certified")
        words = self.words
        return json_line(
            {name: self.row[name] for name in names}
            | {
                "difference": self.difference,
                "state": words.state(),
                "predicted_escape_step": self.predicted_escape,
                "norms": {name: float(value.norm()) for name, value in words.weights.items()},
                "growth": words.growth(),
                "smallest_curvature": self.saddle,
                "balances": words.balances(),
                "words": [
                    {"weight": term.weight, "part": term.part, "kind": term.kind, "word": term.text}
                    | {"norm": float(term.value.norm())}
                    for term in words.terms
                ],
                "attention": [
                    {"name": attention.name, "evenness": attention.evenness, "weights": attention.weights_QT.tolist()}
                    for attention in words.maps
                ],
                "null": self.null,
                "replay": self.replay_command,
            }
        )


def why(directory: SweepDirectory, name: str, shown: str) -> Why:
    """Analyses why a training is stuck at its end. If its weights were not kept, it is trained again.

    Args:
        name: The training, as `find_training` accepts it.
        shown: The directory as the user named it.

    Raises:
        UserError: If there is no such training, it did not end with finite weights, or the user's code fails.
    """
    workload = load_workload_of(directory)
    query = "select trial, replicate from trainings where stuck"
    row, rows, training = ended_training(directory, workload, name, query)
    (end,) = ends_of(directory, [row["training_id"]])
    points = (point for point in rows.curves.to_pylist() if point["metric"] == "eval_loss")
    curve = sorted((point["step"], point["value"]) for point in points)
    with training_settings(), users_code(workload.name, _EXPECTED, _FIX):
        words, saddle = _words(workload, training, end.state)
        (predicted,) = predicted_escapes(workload, [training])
        return Why(
            sweep=shown,
            row=row,
            training=training,
            difference=end.difference,
            words=words,
            saddle=saddle,
            curve=curve,
            predicted_escape=None if math.isnan(predicted) else float(predicted),
            null=[
                f"{', '.join(identity.parameters)} ({identity.name})"
                for identity in workload.identities(training.parameters)
                if isinstance(identity, KeyBias | NoGradient)
            ],
        )


def _words(
    workload: Workload[Any], training: Training[Any], state: Mapping[str, torch.Tensor]
) -> tuple[GradientWords, Saddle | None]:
    """Splits the training's gradients, at the weights in `state`, into the terms that add up to them, in float64. If a
    part of the target (such as its mean) is hardly learned, also returns the direction in weight space along which the
    loss has the smallest curvature; else `None`."""
    module = workload.build(training.parameters).double()
    promoted = {name: value.to(torch.float64) if value.is_floating_point() else value for name, value in state.items()}
    hold_as(module, promoted)
    module.load_state_dict(promoted, strict=False)
    batch = batch_of(workload, training)

    def words_at(module: nn.Module) -> GradientWords:
        return gradient_words(workload, training, module, batch)

    words = words_at(module)
    is_starved = bool(words.starved_parts())
    return words, saddle_of(training, module, batch, loss_of(workload), words_at) if is_starved else None
