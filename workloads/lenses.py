"""What `attnsweep heads` and `attnsweep why` ask of a workload beyond its contract; any workload works without."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.head_maps import SentenceMaps, maps_of_batch, seen_weights


@dataclass(frozen=True, kw_only=True)
class Lenses:
    """A workload's attribute `lenses`.

    Attributes:
        attention: From one training's module and held-out data the attention weights of every layer, (n_sentences,
            n_heads, n_tokens, n_tokens). By default they are read from the module's `attnsweep.Attention` layers or its
            softmaxes.
        vocabulary: From the parameters the words, for data with an entry `token`, (n_sentences, n_tokens).
        maps: The maps of the sentence of this number, or of a default one; if it returns `None`, `attention` and
            `vocabulary` are used.
        layer_names: How layers 0, 1, ... are shown; without a name by number.
        least_examples: The smallest `batch_size` for which means over examples are meaningful.
    """

    attention: Callable[[nn.Module, Batch], Sequence[Tensor]] | None = None
    vocabulary: Callable[[Any], Sequence[str]] = lambda _: ()
    maps: Callable[[Workload[Any], nn.Module, Lanes[Any], int | None], SentenceMaps | None] | None = None
    layer_names: tuple[str, ...] = ()
    least_examples: int = 1


def lenses_of(workload: Workload[Any]) -> Lenses:
    lenses = workload.lenses or Lenses()
    if not isinstance(lenses, Lenses):
        fix = "assign attnsweep.Lenses(...) to the workload's attribute `lenses`"
        raise SpecError(f"{workload.name}.lenses", given=lenses, expected="attnsweep.Lenses(...)", fix=fix)
    return lenses


def batch_of(workload: Workload[Any], training: Training[Any]) -> Batch:
    """One training's first batch, enlarged to `least_examples`, on which its gradients are examined."""
    needed = lenses_of(workload).least_examples
    if needed > 1 and training.parameters.batch_size < needed:
        training = replace(training, parameters=replace(training.parameters, batch_size=needed))
    (batch, *_) = workload.batches(Lanes([training], torch.device("cpu")), range(1))
    return {name: value[0].double() if value.is_floating_point() else value[0] for name, value in batch.items()}


def head_maps(
    workload: Workload[Any], training: Training[Any], state: State, sentence: int | None = None
) -> SentenceMaps:
    """Of all heads on the sentence of this number, from 0; by default a translator's first test sentence of median
    length, other models' first one."""
    if training.parameters.dtype == "bfloat16":
        # As in probes: weights of 8 significant bits would not sum to 1.
        training = replace(training, parameters=replace(training.parameters, dtype="float32"))
    lanes, lenses = Lanes([training], torch.device("cpu")), lenses_of(workload)
    module = workload.build(training.parameters).to(lanes.dtype)
    hold_as(module, state)
    module.load_state_dict(dict(state), strict=False)
    with torch.no_grad(), without_dropout():
        if lenses.maps is not None and (maps := lenses.maps(workload, module, lanes, sentence)) is not None:
            return maps
        batch = {name: value[0] for name, value in workload.eval_batch(lanes).items()}
        if lenses.attention:
            weights = lenses.attention(module, batch)
        else:
            weights = seen_weights(module, lambda: workload.evaluate(module, batch))
    if not weights:
        given, expected = f"a training of {workload.name}", "a training of a model with attention heads"
        fix = "choose another; or compute a softmax (sequence, head, token, token) in eval_loss, or declare `lenses`"
        raise UserError("TRAINING_ID", given=given, expected=expected, fix=fix)
    return maps_of_batch(weights, batch, sentence, lenses.vocabulary(training.parameters))
