"""Writes trained weights, from which other trainings may start, as JSON text, and reads them by name."""

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
    """The weights of a finished training, from which other trainings may start, with its workload and parameters."""

    workload: str
    parameters: Mapping[str, Value]
    weights: Mapping[str, Tensor]


def base_text(base: Base) -> str:
    """Writes trained weights as JSON text. Two sets of weights have the same text if and only if they are equal to the
    last bit."""
    weights = {name: _content(value) for name, value in base.weights.items()}
    content = {"workload": base.workload, "parameters": dict(base.parameters), "weights": weights}
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False)


@lru_cache(maxsize=4)
def read_base(name: str) -> Base:
    """Reads the trained weights of this name, from the file that `attnsweep run` stored or sent to this machine.

    Raises:
        UserError: If `name` is not the name of a base, or there is no such file.
    """
    if NAME.fullmatch(name) is None:
        raise UserError(
            "base",
            given=name,
            expected=HOW_TO_NAME,
            fix="name the training with: attnsweep run SPEC --set base=DIRECTORY:TRIAL/REPLICATE",
        )
    content = json.loads(given_file(Path(name), "base", HOW_TO_NAME, "name the training itself").read_bytes())
    weights = {weight: _tensor(value) for weight, value in content["weights"].items()}
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
