"""The words of a workload's training: those known in closed form, or else those of its program.

Workloads do not import this: what words say must not change the code that a training is recorded with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.translation import Translation
from attnsweep.workloads.words.of_category_pairs import words_of_categories, words_of_positions
from attnsweep.workloads.words.program import NotTracedError, program_of
from attnsweep.workloads.words.terms import GradientWords
from attnsweep.workloads.words.traced import traced_words, whole_gradients

Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class _Known:
    """What is known of a kind of workload.

    Attributes:
        closed: The words in closed form, from parameters and module; `None` where they are not known.
        loss: The loss, where the workload's own is written for speed.
        groups: Groups of examples, by part: docs/why.md.
        least_examples: The least `batch_size` at which means over examples say something.
    """

    closed: Callable[[Any, nn.Module], GradientWords | None] | None = None
    loss: Loss | None = None
    groups: Callable[[nn.Module, Batch], Mapping[str, Tensor]] | None = None
    least_examples: int | None = None


def gradient_words(
    workload: Workload[Any], parameters: TrainingParameters, module: nn.Module, batch: Batch
) -> GradientWords:
    """The words of the gradients of one training.

    Args:
        workload: Any, a user's too.
        parameters: Those of the training.
        module: With its weights and buffers, in float64.
        batch: Its data; not read where words are known in closed form.
    """
    # Not of a user's subclass, which may have another loss.
    known = _KNOWN.get(type(workload), _Known())
    if known.closed is not None and (closed := known.closed(parameters, module)) is not None:
        return closed
    loss = loss_of(workload)
    try:
        program = program_of(module, loss, batch)
    except NotTracedError:
        return whole_gradients(module, loss, batch)
    return traced_words(program, known.groups(module, batch) if known.groups else {})


def loss_of(workload: Workload[Any]) -> Loss:
    """The loss of one training, as a program of basic operations where the workload's own is written for speed."""
    return _KNOWN.get(type(workload), _Known()).loss or workload.loss


def batch_of(workload: Workload[Any], training: Training[Any]) -> Batch:
    """Data on which the gradients of one training are looked at: that of a step, or more where a step has few."""
    least = _KNOWN.get(type(workload), _Known()).least_examples
    if least is not None and training.parameters.batch_size < least:
        training = replace(training, parameters=replace(training.parameters, batch_size=least))
    (batch, *_) = workload.batches(Lanes([training], torch.device("cpu")), range(1))
    return {name: value[0].double() if value.is_floating_point() else value[0] for name, value in batch.items()}


def _closed(parameters: CategoryPairsParameters, module: nn.Module) -> GradientWords | None:
    if isinstance(module, PositionsOnly):
        return words_of_positions(module, softmax=parameters.attention_activation == "softmax")
    if isinstance(module, CategoriesOnly) and parameters.attention_activation == "identity":
        return words_of_categories(module)
    return None


def _whole_loss(module: nn.Module, batch: Batch) -> Tensor:
    """The loss of a full model on all texts at once; that of a reduced system on a batch."""
    if isinstance(module, FullModel):
        loss: Tensor = module(_texts(module, batch))[0] + module.leaning_loss()
        return loss
    return CategoryPairs().loss(module, batch)


def _neighbours(module: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
    """The categories of the current and the previous token; predictions of full models are (B, K), others (K, B)."""
    text_BM = _texts(module, batch)
    current, previous = text_BM[:, 1:], text_BM[:, :-1]
    if not isinstance(module, FullModel):
        current, previous = current.T, previous.T
    return {"current": current, "previous": previous}


def _texts(module: nn.Module, batch: Batch) -> Tensor:
    """(B, M)."""
    return batch["text"] if batch else cast(Tensor, module.text_BM)


def _count(module: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
    """The number of 1s in each string."""
    del module
    return {"count": (batch["feature"][..., 1] * batch["log_count"].exp()).sum(-1).round().to(torch.int64)}


_KNOWN: Mapping[type[Workload[Any]], _Known] = {
    CategoryPairs: _Known(closed=_closed, loss=_whole_loss, groups=_neighbours),
    FormalLanguages: _Known(groups=_count, least_examples=512),
    GPTWorkload: _Known(groups=lambda _, batch: {"current": batch["token"]}),
    Translation: _Known(groups=lambda _, batch: {"previous word": batch["read"]}),
}
