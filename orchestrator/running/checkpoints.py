"""Checkpoints of unfinished packs. One stays until the pack's results are in the ledger, or it is not continued.

`checkpoints/<pack>-<digest>.parquet` has one row: the pack's trainings as (trial, replicate), the environment, and the
pack's state as the trainer's bytes. A damaged checkpoint is removed, and its trainings start from the beginning.

A state may take gigabytes, so the driver holds none in memory: a state is read when its pack is given to a trainer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep.orchestrator.storage.copies import CHECKPOINTS
from attnsweep.orchestrator.storage.files import (
    digest,
    naming,
    open_file,
    parquet_names,
    publish,
    remove,
    unfinished,
)
from attnsweep.orchestrator.training.messages import PackOrder

_SCHEMA = pa.schema(
    [
        ("trial", pa.list_(pa.int32())),
        ("replicate", pa.list_(pa.int32())),
        ("environment", pa.string()),
        ("state", pa.large_binary()),
    ]
)
_PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
"""A state's numbers hardly compress, and a dictionary and statistics of the single value would hold seven copies."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint found at start; `lanes` are (trial, replicate), `environment` is an id, `None` if unknown."""

    pack: str
    lanes: Sequence[tuple[int, int]]
    environment: str | None


class Checkpoints:
    def __init__(self, place: Path) -> None:
        self._place = place
        self._stored: dict[str, tuple[str, str | None]] = {}  # the file's name and the environment, by pack

    def put(self, order: PackOrder, state: bytes) -> None:
        table = pa.table(
            {
                "trial": [[task.trial for task in order.tasks]],
                "replicate": [[task.replicate for task in order.tasks]],
                "environment": [order.environment],
                "state": [state],
            },
            _SCHEMA,
        )
        name = publish(self._place, order.pack, {CHECKPOINTS: partial(pq.write_table, table, **_PLAIN)})
        if name != self._stored.get(order.pack, (None, None))[0]:
            self.remove(order.pack)
        self._stored[order.pack] = name, order.environment

    def environment_of(self, pack: str) -> str | None:
        return self._stored.get(pack, (None, None))[1]

    def latest(self, pack: str, environment: str | None) -> bytes | None:
        """`None` without one of this environment. Raises OSError if the file cannot be read now."""
        name, trained_in = self._stored.get(pack, (None, None))
        if name is None or trained_in != environment:
            return None
        with naming(self._path(name)), open_file(self._path(name)) as file:
            state: bytes = pq.read_table(file, columns=["state"])["state"][0].as_py()
            return state

    def remove(self, pack: str) -> None:
        if (stored := self._stored.pop(pack, None)) is not None:
            remove([self._path(stored[0])])

    def load(self) -> list[Saved]:
        """The checkpoints found; damaged ones are removed. Raises OSError if a file cannot be read now."""
        folder = self._place / CHECKPOINTS
        remove(unfinished(folder))
        checkpoints = {}
        for name in sorted(parquet_names(folder)):
            pack = name.rpartition("-")[0]
            saved = self._read(pack, name)
            if saved is None or pack in checkpoints:
                remove([self._path(name)])
                continue
            checkpoints[pack] = saved
            self._stored[pack] = name, saved.environment
        return list(checkpoints.values())

    def _read(self, pack: str, name: str) -> Saved | None:
        with naming(self._path(name)), open_file(self._path(name)) as file:
            if digest(file) != name.rpartition("-")[2]:
                return None
            file.seek(0)
            (row,) = pq.read_table(file, columns=["trial", "replicate", "environment"]).to_pylist()
        return Saved(pack, list(zip(row["trial"], row["replicate"], strict=True)), row["environment"])

    def _path(self, name: str) -> Path:
        return self._place / CHECKPOINTS / f"{name}.parquet"
