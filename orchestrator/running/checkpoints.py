"""Checkpoints of unfinished packs. One stays in the sweep directory until the pack's results are in the ledger.

`checkpoints/<pack>-<digest>.parquet` has one row: the pack's trainings as (trial, replicate), the environment, and the
pack's state as the trainer's bytes. A damaged checkpoint is removed, and its pack starts from the beginning.

A state may take gigabytes, so the driver holds none in memory: a state is read when its pack is given to a trainer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep.orchestrator.storage.place import CHECKPOINTS, Place, digest
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
"""Parquet options. The numbers of a state hardly compress, and a dictionary and statistics of the single value would
hold seven copies of the value."""
_DAMAGE = (OSError, ValueError, TypeError, KeyError)
"""Errors that show, when a checkpoint is read, that its file is not as it was written. A lack of memory is no
damage."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint found at start; `environment` is the id of the one that trained the pack, `None` if unknown."""

    pack: str
    lanes: Sequence[tuple[int, int]]
    environment: str | None


class Checkpoints:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._stored: dict[str, tuple[str, str | None]] = {}

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
        self._place.make_folders([CHECKPOINTS])
        name = self._place.publish(order.pack, {CHECKPOINTS: partial(pq.write_table, table, **_PLAIN)})
        if name != self._stored.get(order.pack, (None, None))[0]:
            self.remove(order.pack)
        self._stored[order.pack] = name, order.environment

    def environment_of(self, pack: str) -> str | None:
        return self._stored.get(pack, (None, None))[1]

    def latest(self, pack: str, environment: str | None) -> bytes | None:
        """Raises StoreError if the file cannot be read now."""
        name, trained_in = self._stored.get(pack, (None, None))
        if name is None or trained_in != environment:
            return None
        try:
            with self._opened(name) as file:
                state: bytes = pq.read_table(file, columns=["state"])["state"][0].as_py()
                return state
        except _DAMAGE:
            return None

    def remove(self, pack: str) -> None:
        if (stored := self._stored.pop(pack, None)) is not None:
            self._place.remove(CHECKPOINTS, [f"{stored[0]}.parquet"])

    def load(self) -> list[Saved]:
        """Returns the checkpoints found, and removes damaged ones.

        Raises:
            StoreError: If a file cannot be read now.
        """
        if not self._place.has_folder(CHECKPOINTS):
            return []
        self._place.remove(CHECKPOINTS, self._place.unfinished(CHECKPOINTS))
        checkpoints = {}
        for name in sorted(self._place.names(CHECKPOINTS)):
            pack = name.rpartition("-")[0]
            saved = self._read(pack, name)
            if saved is None or pack in checkpoints:
                self._place.remove(CHECKPOINTS, [f"{name}.parquet"])
                continue
            checkpoints[pack] = saved
            self._stored[pack] = name, saved.environment
        return list(checkpoints.values())

    def _read(self, pack: str, name: str) -> Saved | None:
        try:
            with self._opened(name) as file:
                if digest(file) != name.rpartition("-")[2]:
                    return None
                file.seek(0)
                (row,) = pq.read_table(file, columns=["trial", "replicate", "environment"]).to_pylist()
            lanes = list(zip(row["trial"], row["replicate"], strict=True))
            return Saved(pack, lanes, row["environment"])
        except _DAMAGE:
            return None

    @contextmanager
    def _opened(self, name: str) -> Iterator[pa.NativeFile]:
        answering = self._place.answering(self._place.file_name(CHECKPOINTS, name))
        with answering, self._place.open_file(CHECKPOINTS, name) as file:
            yield file
