"""Scores the attention heads of a user's own model by their attention matrices."""

import json
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.diagnostics.matrices import NOT_MEASURED, MatrixScores
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file


def load_matrices(path: Path) -> NDArray[np.float64]:
    """Loads an array of numbers from a `.npy` file, without executing pickled code in it.

    Raises:
        UserError: If there is no such file, or it does not hold an array of numbers.
    """
    file = given_file(path, "FILE", "a .npy file")
    try:
        with file.open("rb") as stream:
            array: NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
        if array.dtype.kind not in "fiu":
            raise ValueError(f"the array contains {array.dtype} values")
        return array.astype(np.float64)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            "FILE",
            given=str(path),
            expected="an array of numbers in NumPy's .npy format",
            fix=f"write the array with numpy.save ({reason})",
        ) from error


def to_json(scores: MatrixScores, path: Path) -> str:
    """Formats the scores of attention heads as one line of JSON with a record per head."""
    content = {"file": str(path), "heads": as_records(scores), "not_measured": list(NOT_MEASURED)}
    return json.dumps(content, allow_nan=False)


def as_records(scores: MatrixScores) -> list[dict[str, object]]:
    """Returns one record per attention head with its scores; a score that is not defined is `None`."""
    return [
        {
            "head": head,
            "positional": bool(scores.is_positional[head]),
            **{name: _number(float(values[head])) for name, values in scores.scores.items()},
            "window": int(scores.window[head]),
            "num_pos": int(scores.num_pos[head]),
            "blocks": [
                {"start": start, "column": column}
                for start, column in zip(scores.starts[head], scores.columns[head], strict=True)
            ],
            "sigma_2_by_window": [_number(value) for value in scores.bands[head].tolist()],
        }
        for head in range(len(scores.window))
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
