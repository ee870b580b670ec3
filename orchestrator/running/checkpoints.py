"""Checkpoints of unfinished packs, kept in the sweep directory until the rows of the pack are in the ledger.

`checkpoints/<pack>-<digest>.parquet` has one row: the lanes as (trial, replicate), the environment, and the state as
the trainer's bytes. An unreadable checkpoint is removed, and its pack starts from the beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep.orchestrator.storage.place import CHECKPOINTS, Place, digest

if TYPE_CHECKING:
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
"""The numbers of a state hardly compress; a dictionary and statistics of its one value are seven copies of it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of an earlier run.

    Attributes:
        pack: The pack's name.
        lanes: (trial, replicate) of each lane.
        environment: The id of the environment that trained it; `None` if unknown.
        state: The trainer's bytes.
    """

    pack: str
    lanes: Sequence[tuple[int, int]]
    environment: str | None
    state: bytes


class Checkpoints:
    """The checkpoints of one sweep; only its driver writes them.

    Args:
        place: The sweep directory.
        environment: The id of the environment that trains now; `None` if unknown.
    """

    def __init__(self, place: Place, environment: str | None = None) -> None:
        self._place = place
        self._environment = environment
        self._latest: dict[str, bytes] = {}
        self._files: dict[str, str] = {}

    def put(self, order: "PackOrder", state: bytes) -> None:
        """Writes a pack's state, and removes its earlier one."""
        table = pa.table(
            {
                "trial": [[task.trial for task in order.tasks]],
                "replicate": [[task.replicate for task in order.tasks]],
                "environment": [self._environment],
                "state": [state],
            },
            _SCHEMA,
        )
        self._place.make_folders([CHECKPOINTS])
        name = self._place.publish(order.pack, {CHECKPOINTS: partial(pq.write_table, table, **_PLAIN)})
        if self._files.get(order.pack) != name:
            self.remove(order.pack)
        self._latest[order.pack], self._files[order.pack] = state, name

    def latest(self, pack: str) -> bytes | None:
        """The last state of a pack."""
        return self._latest.get(pack)

    def remove(self, pack: str) -> None:
        """Removes the checkpoint of a pack."""
        self._latest.pop(pack, None)
        if (name := self._files.pop(pack, None)) is not None:
            self._place.remove(CHECKPOINTS, [f"{name}.parquet"])

    def load(self) -> list[Saved]:
        """The checkpoints of earlier runs. Unreadable ones are removed."""
        if not self._place.has_folder(CHECKPOINTS):
            return []
        self._place.remove(CHECKPOINTS, self._place.unfinished(CHECKPOINTS))
        found = {}
        for name in sorted(self._place.names(CHECKPOINTS)):
            pack = name.rpartition("-")[0]
            saved = self._read(pack, name)
            if saved is None or pack in found:
                self._place.remove(CHECKPOINTS, [f"{name}.parquet"])
                continue
            found[pack] = saved
            self._latest[pack], self._files[pack] = saved.state, name
        return list(found.values())

    def _read(self, pack: str, name: str) -> Saved | None:
        try:
            with self._place.answering(), self._place.open_file(CHECKPOINTS, name) as file:
                if digest(file) != name.rpartition("-")[2]:
                    return None
                file.seek(0)
                (row,) = pq.read_table(file).to_pylist()
            lanes = list(zip(row["trial"], row["replicate"], strict=True))
            return Saved(pack, lanes, row["environment"], row["state"])
        except (OSError, pa.ArrowException, ValueError, TypeError, KeyError):
            return None
