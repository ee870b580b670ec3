"""Why a training stands where it ended: the words of its gradients, its attention and what was forecast."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc
import torch

from attnsweep.orchestrator.inspection.kept_weights import ends_of
from attnsweep.orchestrator.inspection.recorded import find_training, recorded_tasks
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.location import as_argument
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.forecast.prediction import predicted_escapes
from attnsweep.workloads.identities.flat import KeyBias, NoGradient
from attnsweep.workloads.user_code import users_code
from attnsweep.workloads.words.declared import batch_of, gradient_words
from attnsweep.workloads.words.saddle import Saddle, saddle_of
from attnsweep.workloads.words.terms import GradientWords

WITHOUT_END = ("failed", "diverged")
"""Outcomes of trainings whose last weights are nowhere to look at. A pruned one may have diverged before."""
_EXPECTED, _FIX = "a workload that trains", "see attnsweep.check_workload"


@dataclass(frozen=True, kw_only=True)
class Why:
    """What is known of a training where it ended.

    Attributes:
        sweep: The directory, as the user named it.
        row: The training's row of `trainings`.
        training: Its parameters and seed.
        difference: Empty, or in what it ends otherwise than recorded when trained again: the words are then of that
            other ending.
        words: Of its gradients, where it ended.
        saddle: The direction in which the loss curves down most; `None` unless a part is starved and the loss has
            second derivatives.
        curve: Its `eval_loss` at its probes, as (step, value).
        predicted_escape: The step at which the law of its start says that it leaves; `None` without a law, infinite
            where it never does.
        null: What the loss does not depend on, by declaration.
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
        """TRIAL/REPLICATE."""
        return f"{self.row['trial']}/{self.row['replicate']}"

    @property
    def replay_command(self) -> str:
        """The command that trains it again."""
        return f"attnsweep replay {as_argument(self.sweep)} {self.name}"

    def to_json(self) -> str:
        """One line of JSON, for scripts; numbers that are not finite are null."""
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail", "certificate", "certified")
        escape = self.predicted_escape
        content = {
            **{name: self.row[name] for name in names},
            "difference": self.difference,
            "state": self.words.state(),
            "predicted_escape_step": escape,
            "norms": {name: float(value.norm()) for name, value in self.words.weights.items()},
            "growth": self.words.growth(),
            "smallest_curvature": None if self.saddle is None else asdict(self.saddle),
            "balances": [asdict(each) for each in self.words.balances()],
            "words": [
                {
                    "weight": term.weight,
                    "part": term.part,
                    "kind": term.kind,
                    "word": term.text,
                    "norm": float(term.value.norm()),
                }
                for term in self.words.terms
            ],
            "attention": [
                {"name": each.name, "evenness": each.evenness, "weights": each.weights_QT.tolist()}
                for each in self.words.maps
            ],
            "null": list(self.null),
            "replay": self.replay_command,
        }
        return json.dumps(_finite(content), allow_nan=False)


def why(directory: SweepDirectory, name: str, shown: str) -> Why:
    """What there is to say about a training where it ended. It is trained again, unless its weights were kept.

    Args:
        directory: The sweep.
        name: The training, as `find_training` accepts it.
        shown: The directory as the user named it.

    Raises:
        UserError: If there is no such training, it has no end to look at, or the user's code fails.
    """
    workload, ledger = load_workload_of(directory), Ledger(directory.place)
    mine = pc.field("training_id") == find_training(ledger, name)
    rows = ledger.trainings(filter=mine)
    (row,) = rows.to_pylist()
    if row["outcome"] in WITHOUT_END or row["diverged_step"] is not None:
        raise UserError(
            "TRAINING_ID",
            given=f"{name}, which ended as {row['outcome']}",
            expected="a training whose last weights are finite",
            fix='see: attnsweep query DIR "select trial, replicate from trainings where stuck"',
        )
    (task,) = recorded_tasks(workload, rows)
    (end,) = ends_of(directory, [row["training_id"]])
    losses = ledger.curves(filter=mine & (pc.field("metric") == "eval_loss") & (pc.field("trial") == row["trial"]))
    curve = sorted(zip(losses["step"].to_pylist(), losses["value"].to_pylist(), strict=True))
    with training_settings(), users_code(workload.name, _EXPECTED, _FIX):
        words, saddle = _words(workload, task.training, end.state)
        return Why(
            sweep=shown,
            row=row,
            training=task.training,
            difference=end.difference,
            words=words,
            saddle=saddle,
            curve=curve,
            predicted_escape=_predicted(workload, task.training),
            null=_null(workload, task.training),
        )


def _words(
    workload: Workload[Any], training: Training[Any], state: Mapping[str, torch.Tensor]
) -> tuple[GradientWords, Saddle | None]:
    """In float64, whatever it was trained in."""
    module = workload.build(training.parameters).double()
    own = {name: value.to(torch.float64) if value.is_floating_point() else value for name, value in state.items()}
    module.load_state_dict(own, strict=False)
    batch = batch_of(workload, training)
    words = gradient_words(workload, training.parameters, module, batch)
    return words, saddle_of(workload, training, module, batch) if words.starved_parts() else None


def _predicted(workload: Workload[Any], training: Training[Any]) -> float | None:
    (steps,) = predicted_escapes(workload, [training])
    return None if math.isnan(steps) else float(steps)


def _null(workload: Workload[Any], training: Training[Any]) -> list[str]:
    declared = workload.identities(training.parameters)
    return [
        f"{', '.join(each.parameters)} ({each.name})" for each in declared if isinstance(each, KeyBias | NoGradient)
    ]


def _finite(content: Any) -> Any:
    match content:
        case dict():
            return {name: _finite(value) for name, value in content.items()}
        case list() | tuple():
            return [_finite(value) for value in content]
        case float() if not math.isfinite(content):
            return None
    return content
