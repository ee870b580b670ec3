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

_DRAWS = "no random draws but dropout: those of a training must follow from its seed and the step"
_AS_IF_ALONE = "operations that PyTorch's vmap can do for many trainings at once"
_CAUSES: dict[str, tuple[str, str] | tuple[str, str, str]] = {
    "randomness error mode": (
        "a random draw, for example by torch.randn_like",
        "draw in `data` with its argument `draw` and return it among the inputs",
        _DRAWS,
    ),
    "aten::rrelu": (
        "a random draw, by nn.RReLU",
        "use nn.LeakyReLU, or draw the slopes in `data` with its argument `draw`",
        _DRAWS,
    ),
    "data-dependent control flow": (
        "a decision by the value of a tensor (if, while, assert)",
        "use torch.where, or let a static parameter decide",
    ),
    ".item() on a Tensor": (
        "a tensor's value as a Python number (.item(), int(), float(), a slice's end)",
        "compute with the tensor itself, or with a static parameter",
    ),
    "torch.allclose": (
        "a decision by the value of a tensor (torch.allclose)",
        "use torch.where, or let a static parameter decide",
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
    "masked_select": (
        "a result whose shape depends on values (masked_select, or a cross-entropy with weights and label_smoothing)",
        "keep all entries, and give those that do not count the weight 0",
    ),
    "dynamic shape": (
        "a result whose shape depends on values (indexing by a mask, nonzero, unique)",
        "keep all entries, and give those that do not count the weight 0",
    ),
    "that has more elements than `self`": (
        "a change in place of a tensor that all trainings share",
        "make a new tensor, for example by torch.stack, torch.where or x = x + y",
    ),
    "not implemented for sparse tensors": (
        "a sparse gradient, for example of nn.Embedding(sparse=True)",
        "leave sparse=True out",
        "gradients that are not sparse",
    ),
    "is the output of a function that returns multiple views": (
        "a change in place of a parameter, for example by nn.Embedding(max_norm=...)",
        "compute with a new tensor, such as weight.clamp(-1, 1)",
        "parameters that only the optimizer changes",
    ),
    "accessing `data` under vmap": ("a tensor's .data", "use .detach(), and change no parameter or buffer"),
    "Cannot access storage of": (
        "a copy of a module or of a tensor's memory (copy.deepcopy)",
        "compute with the module itself, or with a copy that `model` makes",
    ),
    "Cannot access data pointer": (
        "a tensor's values outside of PyTorch (.numpy(), .tolist())",
        "compute it in PyTorch",
    ),
    "does not have vmap support": (
        "a torch.autograd.Function without a form for many trainings at once",
        "set generate_vmap_rule = True in its class, or define its method vmap",
        "a function that PyTorch's vmap supports",
    ),
    "must override the setup_context staticmethod": (
        "a torch.autograd.Function whose forward takes ctx, such as torch.utils.checkpoint(use_reentrant=True)",
        "define setup_context and generate_vmap_rule = True; leave torch.utils.checkpoint out",
        "a function that PyTorch's vmap supports",
    ),
    "may have escaped from inside a function being vmapped": (
        "a tensor of an earlier call, or computed by torch.utils.checkpoint",
        "store no tensor from call to call; leave torch.utils.checkpoint out",
    ),
    "torch.utils.checkpoint: ": (
        "torch.utils.checkpoint",
        "leave it out: the engine trains fewer at once where memory is short",
    ),
    "call Tensor.requires_grad_()": (
        "a tensor made to require gradients inside the loss",
        "compute gradients within a loss by torch.func.grad",
    ),
    "backward() called inside": (
        "backward() inside the loss",
        "leave it out, or compute gradients within a loss by torch.func.grad",
        "a loss that returns its value: the engine computes the gradients",
    ),
    "must only return Tensors, got type": (
        "a result that is not a tensor: {}",
        "return the loss itself, such as errors.square().mean()",
        "a tensor of one number",
    ),
    "we do not yet support": (
        "an operation that has no form for many trainings at once ({})",
        "write it with other operations",
    ),
    "Batching rule not implemented": (
        "an operation that has no form for many trainings at once ({})",
        "write it with other operations",
    ),
}
"""For a phrase of PyTorch's error: what the function did, the fix, and what is expected if not `_AS_IF_ALONE`."""


@contextmanager
def told_to_users() -> Iterator[None]:
    """Turns errors of PyTorch that a user's function causes into a `SpecError`."""
    try:
        yield
    except (IndexError, RuntimeError, ValueError) as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise refusal from error


def refusal_of(error: Exception, subject: str = "") -> SpecError | None:
    """The `SpecError` for an error of `vmap`, by default about the user's line at fault; `None` if it is unknown."""
    text, frame = str(error), _users_frame(error)
    for phrase, (given, fix, *other) in _CAUSES.items():
        if phrase in text:
            operation = text.partition(phrase)[2].removeprefix(" for").partition(". ")[0].partition(";")[0].strip()
            where = f"{Path(frame.filename).name}, line {frame.lineno}" if frame else "the loss"
            expected = (*other, _AS_IF_ALONE)[0]
            return SpecError(subject or where, given=given.format(operation), expected=expected, fix=fix)
    return None


def reason_of(error: Exception) -> str:
    """Explains in a sentence why PyTorch could not trace a step, and names the line of the user's code at fault."""
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
