"""Translates PyTorch's errors about `vmap` and tracing into what a user's function must not do."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from attnsweep.workloads.errors import SpecError

_IN_PYTORCH = str(Path(torch.__file__).parent)
_IN_WORKLOADS = str(Path(__file__).parents[1])
_STANDARD_LIBRARY = Path(traceback.__file__).parent

_AS_IF_ALONE = "operations that PyTorch's vmap can do for many trainings at once"
_NO_FORM = ("an operation that has no form for many trainings at once ({})", "write it with other operations")
_FUNCTION = (
    "a torch.autograd.Function without a form for many trainings at once",
    "set generate_vmap_rule = True in its class, and define setup_context",
    "a function that PyTorch's vmap supports",
)
_SHAPE = (
    "a result whose shape depends on values (indexing by a mask, masked_select, nonzero, unique)",
    "keep all entries, and give those that do not count the weight 0",
)
_CHECKPOINT = (
    "a tensor of an earlier call, or computed by torch.utils.checkpoint",
    "store no tensor from call to call; leave torch.utils.checkpoint out",
)
_CAUSES: dict[str, tuple[str, str] | tuple[str, str, str]] = {
    "randomness error mode": (
        "a random draw, for example by torch.randn_like",
        "draw in `data` with its argument `draw` and return it among the inputs",
        "no random draws but dropout: those of a training must follow from its seed and the step",
    ),
    "data-dependent control flow": (
        "a decision by the value of a tensor (if, while, assert)",
        "use torch.where, or let a static parameter decide",
    ),
    ".item() on a Tensor": (
        "a tensor's value as a Python number (.item(), int(), float(), a slice's end)",
        "compute with the tensor itself, or with a static parameter",
    ),
    "index out of range in self": (
        "an index that is no row of an embedding",
        "count words from 0, and give the embedding a row for each",
        "indices from 0 to num_embeddings - 1",
    ),
    " is out of bounds": (
        "an index out of bounds",
        "count from 0, and let the tensor have an entry for each index",
        "indices, and classes as targets, from 0 to the number of entries - 1",
    ),
    **dict.fromkeys(("masked_select", "dynamic shape"), _SHAPE),
    "that has more elements than `self`": (
        "a change in place of a tensor that all trainings share",
        "make a new tensor, for example by torch.stack, torch.where or x = x + y",
    ),
    **dict.fromkeys(("does not have vmap support", "must override the setup_context staticmethod"), _FUNCTION),
    **dict.fromkeys(("may have escaped from inside a function being vmapped", "torch.utils.checkpoint: "), _CHECKPOINT),
    "must only return Tensors, got type": (
        "a result that is not a tensor: {}",
        "return the loss itself, such as errors.square().mean()",
        "a tensor of one number",
    ),
    **dict.fromkeys(("we do not yet support", "Batching rule not implemented"), _NO_FORM),
}
"""For a phrase of PyTorch's error: what the function did, the fix, and what is expected if not `_AS_IF_ALONE`."""
_OF_VMAP = ("vmap", "functorch", "Cannot access", "transforms")
"""Words in other errors of `vmap`, which are told as they are."""


@contextmanager
def told_to_users() -> Iterator[None]:
    """Turns PyTorch's errors that a user's function causes into a `SpecError`."""
    try:
        yield
    except (IndexError, RuntimeError, ValueError) as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise refusal from error


def refusal_of(error: Exception, subject: str = "") -> SpecError | None:
    """The `SpecError` for an error of `vmap`, by default about the user's line at fault; `None` for another error."""
    text, frame = str(error), _users_frame(error)
    where = f"{Path(frame.filename).name}, line {frame.lineno}" if frame else "the loss"
    for phrase, (given, fix, *other) in _CAUSES.items():
        if phrase in text:
            operation = text.partition(phrase)[2].removeprefix(" for").partition(". ")[0].partition(";")[0].strip()
            expected = (*other, _AS_IF_ALONE)[0]
            return SpecError(subject or where, given=given.format(operation), expected=expected, fix=fix)
    if frame and any(word in text for word in _OF_VMAP):
        return SpecError(where, given=text.splitlines()[0], expected=_AS_IF_ALONE, fix="write it with other operations")
    return None


def reason_of(error: Exception) -> str:
    """Why PyTorch could not trace a step, with the user's line at fault."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    frame = _users_frame(error)
    line = f" ({Path(frame.filename).name}, line {frame.lineno}: {frame.line})" if frame else ""
    if isinstance(error, GuardOnDataDependentSymNode):
        return f"it depends on the value of a tensor{line}"
    if "convert all Tensors to FakeTensors" in str(error):
        return f"it reads a tensor that is neither in the module nor among the data{line}; make it a buffer"
    first_line, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first_line}"


def _users_frame(error: Exception) -> traceback.FrameSummary | None:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_IN_PYTORCH, _IN_WORKLOADS))
        and Path(frame.filename).parent != _STANDARD_LIBRARY
    ]
    return frames[-1] if frames else None
