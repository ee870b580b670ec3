"""The trained weights that other trainings start from, as a text. `given_file` finds it by its name."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnsweep.workloads.base_names import HOW_TO_NAME, NAME
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file
from attnsweep.workloads.parameters import Value


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Base:
    """A trained module.

    Attributes:
        workload: The name of its workload.
        parameters: The parameters of its training.
        weights: Its parameters and buffers, by name.
    """

    workload: str
    parameters: Mapping[str, Value]
    weights: Mapping[str, Tensor]


def base_text(base: Base) -> str:
    """The text of a base: equal for two bases if and only if they are equal to the last bit."""
    weights = {name: _content(value) for name, value in base.weights.items()}
    content = {"workload": base.workload, "parameters": dict(base.parameters), "weights": weights}
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False)


@lru_cache(maxsize=4)
def read_base(name: str) -> Base:
    """The base of this name, once its text is there: a run puts it there.

    Raises:
        UserError: If it is not.
    """
    if NAME.fullmatch(name) is None:
        raise UserError("base", given=name, expected=HOW_TO_NAME, fix="give it to attnsweep run --set base=...")
    content = json.loads(given_file(Path(name), "base", HOW_TO_NAME, "name the training itself").read_bytes())
    weights = {each: _tensor(value) for each, value in content["weights"].items()}
    return Base(workload=content["workload"], parameters=content["parameters"], weights=weights)


def _content(value: Tensor) -> dict[str, object]:
    array = value.numpy(force=True)
    little_endian = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "values": base64.b64encode(little_endian.tobytes()).decode(),
    }


def _tensor(content: Mapping[str, object]) -> Tensor:
    dtype = np.dtype(str(content["dtype"]))
    array = np.frombuffer(base64.b64decode(str(content["values"])), dtype.newbyteorder("<")).astype(dtype)
    return torch.from_numpy(array.reshape(content["shape"]))
