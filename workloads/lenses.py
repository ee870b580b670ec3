"""What can be seen of a training where it stands: the words of its gradients, and what its attention heads look at.

All of it is found without a declaration. A workload whose `lenses` declare more gets more.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.head_maps import SentenceMaps, maps_of_batch, watched_attention
from attnsweep.workloads.words.program import NotTracedError, program_of
from attnsweep.workloads.words.terms import GradientWords
from attnsweep.workloads.words.traced import traced_words, whole_gradients

Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True, kw_only=True)
class Lenses:
    """What a workload declares for `attnsweep heads` and `attnsweep why`: its attribute `lenses`.

    Attributes:
        attention: The attention weights (B, H, T, T) of each layer of one training, from its module and the held-out
            batch; by default those of all `attnsweep.Attention` in the module, or else of its softmaxes.
        vocabulary: The tokens as text, from the parameters, where the batch has `token` (B, T).
        maps: Whole maps, of the sentence of a number or a default one, where the two above do not suffice; `None` from
            it leaves the training to them.
        groups: By part, the group (int64) of each example of the output: docs/why.md.
        least_examples: The least `batch_size` at which means over examples say something.
        loss: The loss, where the workload's own is written for speed.
        words: The words in closed form, from parameters and module; `None` from it where they are not known.
    """

    attention: Callable[[nn.Module, Batch], Sequence[Tensor]] | None = None
    vocabulary: Callable[[Any], Sequence[str]] = lambda _: ()
    maps: Callable[[Workload[Any], nn.Module, Lanes[Any], int | None], SentenceMaps | None] | None = None
    groups: Callable[[nn.Module, Batch], Mapping[str, Tensor]] = lambda _module, _batch: {}
    least_examples: int = 1
    loss: Loss | None = None
    words: Callable[[Any, nn.Module], GradientWords | None] = lambda _parameters, _module: None


def lenses_of(workload: Workload[Any]) -> Lenses:
    """What a workload's class declares. A subclass keeps its heads only: it may have another loss.

    Raises:
        SpecError: If it declares something else.
    """
    declared = workload.lenses
    found = importlib.import_module(declared).LENSES if isinstance(declared, str) else declared or Lenses()
    if not isinstance(found, Lenses):
        raise SpecError(f"{workload.name}.lenses", given=found, expected="attnsweep.Lenses(...)", fix="declare it so")
    if "lenses" in vars(type(workload)):
        return found
    return Lenses(attention=found.attention, vocabulary=found.vocabulary, maps=found.maps)


def gradient_words(workload: Workload[Any], training: Training[Any], module: nn.Module, batch: Batch) -> GradientWords:
    """The words of the gradients of one training: those known in closed form, or else those of its loss's program.

    Args:
        workload: Any, a user's too.
        training: Its parameters and seed.
        module: With its weights and buffers, in float64.
        batch: Its data; not read where words are known in closed form.
    """
    lenses, loss = lenses_of(workload), loss_of(workload)
    if (known := lenses.words(training.parameters, module)) is not None:
        return known
    try:
        program = program_of(module, loss, batch)
    except NotTracedError:
        return whole_gradients(module, loss, batch)
    return traced_words(program, lenses.groups(module, batch))


def loss_of(workload: Workload[Any]) -> Loss:
    """The loss of one training, as a program of basic operations where the workload's own is written for speed."""
    return lenses_of(workload).loss or workload.loss


def batch_of(workload: Workload[Any], training: Training[Any]) -> Batch:
    """Data on which the gradients of one training are looked at: that of a step, or more where a step has few."""
    least = lenses_of(workload).least_examples
    if least > 1 and training.parameters.batch_size < least:
        training = replace(training, parameters=replace(training.parameters, batch_size=least))
    (batch, *_) = workload.batches(Lanes([training], torch.device("cpu")), range(1))
    return {name: value[0].double() if value.is_floating_point() else value[0] for name, value in batch.items()}


def head_maps(
    workload: Workload[Any], training: Training[Any], state: State, sentence: int | None = None
) -> SentenceMaps:
    """The attention maps of all heads of one training on one sentence.

    Args:
        workload: Any, a user's too.
        training: Its parameters and seed.
        state: Its parameters and buffers by name.
        sentence: The number of the sentence, from 0. By default a translator reads the first test sentence of median
            length, and others read their first one.

    Raises:
        UserError: If the model has no attention heads, or there is no such sentence.
    """
    if training.parameters.dtype == "bfloat16":
        # As probes measure: rounded to 8 bits, weights would not sum to 1.
        training = replace(training, parameters=replace(training.parameters, dtype="float32"))
    lanes, lenses = Lanes([training], torch.device("cpu")), lenses_of(workload)
    module = workload.build(training.parameters).to(lanes.dtype)
    hold_as(module, state)
    module.load_state_dict(dict(state), strict=False)
    with torch.no_grad(), without_dropout():
        if lenses.maps is not None and (found := lenses.maps(workload, module, lanes, sentence)) is not None:
            return found
        batch = {name: value[0] for name, value in workload.eval_batch(lanes).items()}
        weights = lenses.attention(module, batch) if lenses.attention else watched_attention(workload, module, batch)
    if not weights:
        raise UserError(
            "TRAINING_ID",
            given=f"a training of {workload.name}",
            expected="one with attention heads",
            fix="a workload of your own has maps if its eval_loss takes a softmax of (sequence, head, token, token), or"
            " by its `lenses`",
        )
    return maps_of_batch(weights, batch, sentence, lenses.vocabulary(training.parameters))
