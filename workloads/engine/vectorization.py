"""Translates PyTorch's errors about `vmap` into errors that tell users what their function must not do."""

import traceback
from pathlib import Path

import torch

from attnsweep.workloads.errors import SpecError

_IN_PYTORCH = str(Path(torch.__file__).parent)
_IN_ENGINE = str(Path(__file__).parent)
_STANDARD_LIBRARY = Path(traceback.__file__).parent

_AS_IF_ALONE = "operations that PyTorch's vmap can do for many trainings at once"
_CAUSES = (
    (
        "randomness error mode",
        "a random draw, for example by torch.randn_like",
        "no random draws but dropout: those of a training must follow from its seed and the step",
        "draw in `batch` from lanes.streams and pass it in the batch",
    ),
    (
        "aten::rrelu",
        "a random draw, by nn.RReLU",
        "no random draws but dropout: those of a training must follow from its seed and the step",
        "use nn.LeakyReLU, or draw the slopes in `batch` from lanes.streams",
    ),
    (
        "data-dependent control flow",
        "a decision by the value of a tensor (if, while, assert)",
        _AS_IF_ALONE,
        "use torch.where, or let a static parameter decide",
    ),
    (
        ".item() on a Tensor",
        "a tensor's value as a Python number (.item(), int(), float(), a slice's end)",
        _AS_IF_ALONE,
        "compute with the tensor itself, or with a static parameter",
    ),
    (
        "torch.allclose",
        "a decision by the value of a tensor (torch.allclose)",
        _AS_IF_ALONE,
        "use torch.where, or let a static parameter decide",
    ),
    (
        "masked_select",
        "a result whose shape depends on values (masked_select, or a cross-entropy with weights and label_smoothing)",
        _AS_IF_ALONE,
        "keep all entries, and give those that do not count the weight 0",
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
        "make a new tensor, for example by torch.stack, torch.where or x = x + y",
    ),
    (
        "not implemented for sparse tensors",
        "a sparse gradient, for example of nn.Embedding(sparse=True)",
        "gradients that are not sparse",
        "leave sparse=True out",
    ),
    (
        "is the output of a function that returns multiple views",
        "a change in place of a parameter, for example by nn.Embedding(max_norm=...)",
        "parameters that only the optimizer changes",
        "compute with a new tensor, such as weight.clamp(-1, 1)",
    ),
    (
        "accessing `data` under vmap",
        "a tensor's .data",
        _AS_IF_ALONE,
        "use .detach(), and change no parameter or buffer",
    ),
    (
        "Cannot access storage of",
        "a copy of a module or of a tensor's memory (copy.deepcopy)",
        _AS_IF_ALONE,
        "compute with the module itself, or with a copy that `build` makes",
    ),
    (
        "Cannot access data pointer",
        "a tensor's values outside of PyTorch (.numpy(), .tolist())",
        _AS_IF_ALONE,
        "compute it in PyTorch",
    ),
    (
        "does not have vmap support",
        "a torch.autograd.Function without a form for many trainings at once",
        "a function that PyTorch's vmap supports",
        "set generate_vmap_rule = True in its class, or define its method vmap",
    ),
    (
        "must override the setup_context staticmethod",
        "a torch.autograd.Function whose forward takes ctx, such as torch.utils.checkpoint(use_reentrant=True)",
        "a function that PyTorch's vmap supports",
        "define setup_context and generate_vmap_rule = True; leave torch.utils.checkpoint out",
    ),
    (
        "may have escaped from inside a function being vmapped",
        "a tensor of an earlier call, or computed by torch.utils.checkpoint",
        _AS_IF_ALONE,
        "store no tensor from call to call; leave torch.utils.checkpoint out",
    ),
    (
        "torch.utils.checkpoint: ",
        "torch.utils.checkpoint",
        _AS_IF_ALONE,
        "leave it out: the engine trains fewer at once where memory is short",
    ),
    (
        "call Tensor.requires_grad_()",
        "a tensor made to require gradients inside the loss",
        _AS_IF_ALONE,
        "compute gradients within a loss by torch.func.grad",
    ),
    (
        "backward() called inside",
        "backward() inside the loss",
        "a loss that returns its value: the engine computes the gradients",
        "leave it out, or compute gradients within a loss by torch.func.grad",
    ),
    (
        "must only return Tensors, got type",
        "a result that is not a tensor: {}",
        "a tensor of one number",
        "return the loss itself, such as errors.square().mean()",
    ),
    (
        "we do not yet support",
        "an operation that has no form for many trainings at once ({})",
        _AS_IF_ALONE,
        "write it with other operations",
    ),
    (
        "Batching rule not implemented",
        "an operation that has no form for many trainings at once ({})",
        _AS_IF_ALONE,
        "write it with other operations",
    ),
)


def refusal_of(error: Exception, subject: str = "") -> SpecError | None:
    """Translates an error that `vmap` raised into a `SpecError` for the user; returns `None` for all other errors.

    Args:
        error: The exception that PyTorch raised.
        subject: The name of the part at fault; by default the user's line of code that raised the error.
    """
    text = str(error)
    for phrase, given, expected, fix in _CAUSES:
        if phrase in text:
            operation = text.partition(phrase)[2].removeprefix(" for").partition(". ")[0].partition(";")[0].strip()
            return SpecError(subject or _place_of(error), given=given.format(operation), expected=expected, fix=fix)
    return None


def _place_of(error: Exception) -> str:
    """Returns file and line of the innermost traceback frame outside of Python's library, PyTorch and the engine."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_IN_PYTORCH, _IN_ENGINE)) and Path(frame.filename).parent != _STANDARD_LIBRARY
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "the loss"


_NOT_THE_USERS = (Path(torch.__file__).parent, Path(__file__).parent.parent)


def reason_of(error: Exception) -> str:
    """Explains why tracing failed, with the line of the user's code that cannot be traced."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if isinstance(error, GuardOnDataDependentSymNode):
        return f"it depends on the value of a tensor{_line_of(error)}"
    if "convert all Tensors to FakeTensors" in str(error):
        return f"it reads a tensor that is neither in the module nor in the batch{_line_of(error)}; make it a buffer"
    first_line, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first_line}"


def _line_of(error: Exception) -> str:
    """Describes the innermost traceback line outside of PyTorch and the engine; empty if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_the_users(Path(frame.filename))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno}: {frames[-1].line})" if frames else ""


def _is_the_users(file: Path) -> bool:
    return not any(file.is_relative_to(folder) for folder in _NOT_THE_USERS)
