"""Explains in one sentence, for the author of a workload, why PyTorch could not trace a step."""

import traceback
from pathlib import Path

import torch

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
