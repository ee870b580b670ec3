"""The scores of a user's own attention matrices."""

import json
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.diagnostics.matrices import NOT_MEASURED, MatrixScores
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file


def load_matrices(path: Path) -> NDArray[np.float64]:
    """The array of numbers in a `.npy` file; nothing in it is executed.

    Raises:
        UserError: If there is no such file, or it does not hold an array of numbers.
    """
    found = given_file(path, "FILE", "a .npy file")
    try:
        with found.open("rb") as file:
            array: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
        if array.dtype.kind not in "fiu":
            raise ValueError(f"it holds {array.dtype}")
        return array.astype(np.float64)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise UserError(
            "FILE",
            given=str(path),
            expected="an array of numbers in NumPy's .npy format",
            fix=f"write it with numpy.save ({' '.join(str(error).split())})",
        ) from error


def to_json(found: MatrixScores, path: Path) -> str:
    """One line of JSON: a record per head."""
    content = {"file": str(path), "heads": as_records(found), "not_measured": list(NOT_MEASURED)}
    return json.dumps(content, allow_nan=False)


def as_records(found: MatrixScores) -> list[dict[str, object]]:
    """A record per head; `None` where a score is not defined."""
    return [
        {
            "head": head,
            "positional": bool(found.is_positional[head]),
            **{name: _number(float(score[head])) for name, score in found.scores.items()},
            "window": int(found.window[head]),
            "num_pos": int(found.num_pos[head]),
            "blocks": [
                {"start": start, "column": column}
                for start, column in zip(found.starts[head], found.columns[head], strict=True)
            ],
            "sigma_2_by_window": [_number(each) for each in found.bands[head].tolist()],
        }
        for head in range(len(found.window))
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
