"""Checkpoints of packs: all state that training changes, as arrays by name. The file is an uncompressed `.npz` without
pickled objects, followed by its BLAKE2b digest."""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Training

Checkpoint: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT = 4
"""Increase it when the names, shapes or meaning of a checkpoint's arrays change."""
_DIGEST_BYTES = 32


class CheckpointError(Exception):
    """The checkpoint is damaged or of other trainings: the caller trains from step 0."""


def to_bytes(checkpoint: Checkpoint) -> bytes:
    file = io.BytesIO()
    np.savez(file, **checkpoint)  # type: ignore[arg-type]  # no array is called `allow_pickle`
    file.write(_digest(file.getbuffer()))
    return file.getvalue()


def from_bytes(content: bytes) -> Checkpoint:
    """Reads what `to_bytes` returned; a `CheckpointError` if any byte differs."""
    if content[-_DIGEST_BYTES:] != _digest(memoryview(content)[:-_DIGEST_BYTES]):
        raise CheckpointError(
            f"a checkpoint of {len(content)} bytes is damaged or incomplete, because its digest differs from the"
            " stored one"
        )
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except ValueError as error:
        raise CheckpointError(f"a checkpoint holds an array that cannot be read: {error}") from error


def fingerprint(workload: str, trainings: Sequence[Training[Any]], probe_steps: Sequence[int], row_width: int) -> str:
    """A checkpoint is resumed only by a pack with the same hash. `row_width` includes padding."""
    seeded = [(training.parameters.values(), training.seed) for training in trainings]
    content = [FORMAT, workload, seeded, list(probe_steps), row_width]
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _digest(content: memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
