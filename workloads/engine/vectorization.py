"""What PyTorch's `vmap` cannot do in a user's function, in one sentence each."""

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
        "a random draw, as by torch.randn_like",
        "none but dropout: what a training draws follows from its seed and the step",
        "draw in `batch` from lanes.streams and pass it in the batch",
    ),
    (
        "aten::rrelu",
        "a random draw, by nn.RReLU",
        "none but dropout: what a training draws follows from its seed and the step",
        "use nn.LeakyReLU, or draw the slopes in `batch` from lanes.streams",
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
        "torch.allclose",
        "a decision by the value of a tensor (torch.allclose)",
        _AS_IF_ALONE,
        "use torch.where, or decide by a static parameter",
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
        "make a new tensor, as by torch.stack, torch.where or x = x + y",
    ),
    (
        "not implemented for sparse tensors",
        "a sparse gradient, as by nn.Embedding(sparse=True)",
        "gradients that are not sparse",
        "leave sparse=True out",
    ),
    (
        "is the output of a function that returns multiple views",
        "a change in place of a parameter, as by nn.Embedding(max_norm=...)",
        "parameters that only gradients change",
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
        "one that PyTorch's vmap can take",
        "set generate_vmap_rule = True in its class, or give it a method vmap",
    ),
    (
        "must override the setup_context staticmethod",
        "a torch.autograd.Function whose forward takes ctx, as that of torch.utils.checkpoint(use_reentrant=True) does",
        "one that PyTorch's vmap can take",
        "give it setup_context and generate_vmap_rule = True; leave torch.utils.checkpoint out",
    ),
    (
        "may have escaped from inside a function being vmapped",
        "a tensor of an earlier call, or computed by torch.utils.checkpoint",
        _AS_IF_ALONE,
        "keep no tensor from call to call; leave torch.utils.checkpoint out",
    ),
    (
        "torch.utils.checkpoint: ",
        "torch.utils.checkpoint",
        _AS_IF_ALONE,
        "leave it out: the engine trains fewer at once where memory is short",
    ),
    (
        "call Tensor.requires_grad_()",
        "a tensor made to require gradients inside of the loss",
        _AS_IF_ALONE,
        "take gradients within a loss by torch.func.grad",
    ),
    (
        "backward() called inside",
        "backward() inside of the loss",
        "a loss, whose gradients the engine takes",
        "leave it out, or take gradients within a loss by torch.func.grad",
    ),
    (
        "must only return Tensors, got type",
        "a result that is no tensor: {}",
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
    """The user's error behind one of `vmap`; `None` for another error.

    Args:
        error: What PyTorch raised.
        subject: What is at fault; by default the line that raised it.
    """
    text = str(error)
    for sign, given, expected, fix in _CAUSES:
        if sign in text:
            operation = text.partition(sign)[2].removeprefix(" for").partition(". ")[0].partition(";")[0].strip()
            return SpecError(subject or _place_of(error), given=given.format(operation), expected=expected, fix=fix)
    return None


def _place_of(error: Exception) -> str:
    """The last line before the error that is neither Python's, PyTorch's nor the engine's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_IN_PYTORCH, _IN_ENGINE)) and Path(frame.filename).parent != _STANDARD_LIBRARY
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "the loss"
