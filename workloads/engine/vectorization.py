"""What PyTorch's `vmap` cannot do in a user's function, in one sentence each."""

import traceback
from pathlib import Path

import torch

from attnsweep.workloads.errors import SpecError, in_words

_IN_PYTORCH = str(Path(torch.__file__).parent)
_IN_ENGINE = str(Path(__file__).parent)

_AS_IF_ALONE = "operations that PyTorch's vmap can do for many trainings at once"
_CAUSES = (
    (
        "randomness error mode",
        "a random draw, as by nn.Dropout",
        "none: what a training draws follows from its seed and the step",
        "set dropout to 0, or draw in `batch` from lanes.streams and pass it in the batch",
    ),
    (
        "data-dependent control flow",
        "a decision by the value of a tensor (if, while, assert)",
        _AS_IF_ALONE,
        "use torch.where, or decide by a static parameter",
    ),
    (
        ".item() on a Tensor",
        "a tensor's value as a Python number (.item(), int(), float(), a slice's end)",
        _AS_IF_ALONE,
        "compute with the tensor itself, or with a static parameter",
    ),
    (
        "dynamic shape",
        "a result whose shape depends on values (indexing by a mask, nonzero, unique)",
        _AS_IF_ALONE,
        "keep all entries, and give those that do not count the weight 0",
    ),
    (
        "that has more elements than `self`",
        "a change in place of a tensor that all trainings share",
        _AS_IF_ALONE,
        "make a new tensor, as by torch.stack, torch.where or x = x + y",
    ),
    (
        "Cannot access data pointer",
        "a tensor's values outside of PyTorch (.numpy(), .tolist())",
        _AS_IF_ALONE,
        "compute it in PyTorch",
    ),
    (
        "Batching rule not implemented",
        "an operation that has no form for many trainings at once ({})",
        _AS_IF_ALONE,
        "write it with other operations: nn.GRUCell in a loop for nn.GRU, matrix products for fused attention",
    ),
)


def refusal_of(error: RuntimeError) -> SpecError | None:
    """The user's error behind one of `vmap`; `None` for another error."""
    text = str(error)
    for sign, given, expected, fix in _CAUSES:
        if sign in text:
            operation = text.partition(sign)[2].removeprefix(" for ").partition(". ")[0]
            return SpecError(_place_of(error), given=given.format(operation), expected=expected, fix=fix)
    return None


def _place_of(error: RuntimeError) -> str:
    """The last line before the error that is neither PyTorch's nor the engine's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_IN_PYTORCH, _IN_ENGINE))
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else in_words(error)
