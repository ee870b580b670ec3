"""Why PyTorch could not trace a step, in a sentence for whoever wrote it."""

import traceback
from pathlib import Path

import torch

_NOT_THE_USERS = (Path(torch.__file__).parent, Path(__file__).parent.parent)


def reason_of(error: Exception) -> str:
    """The reason, with the line of the step that asked for what a trace has none of."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if isinstance(error, GuardOnDataDependentSymNode):
        return f"it depends on the value of a tensor{_line_of(error)}"
    if "convert all Tensors to FakeTensors" in str(error):
        return f"it reads a tensor that is neither in the module nor in the batch{_line_of(error)}; make it a buffer"
    first_line, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first_line}"


def _line_of(error: Exception) -> str:
    """The innermost line that is neither PyTorch's nor the engine's; none if there is no such line."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_the_users(Path(each.filename))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno}: {frames[-1].line})" if frames else ""


def _is_the_users(file: Path) -> bool:
    return not any(file.is_relative_to(folder) for folder in _NOT_THE_USERS)
