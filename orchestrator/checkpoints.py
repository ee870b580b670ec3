"""Packs in mid-course, kept in the sweep directory until their rows are in the ledger.

`checkpoints/<pack>.parquet`, one row: the lanes as (trial, replicate), and the bytes that the trainer handed over. A
pack is there at most once; what cannot be read, or belongs to trainings that are done, is passed over and removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.places.location import Location, place_at

if TYPE_CHECKING:
    from orchestrator.trainer import PackOrder

FOLDER = "checkpoints"
_SCHEMA = pa.schema(
    [("trial", pa.list_(pa.int32())), ("replicate", pa.list_(pa.int32())), ("state", pa.large_binary())]
)


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint found.

    Attributes:
        pack: The pack's name.
        lanes: (trial, replicate) of each lane.
        state: As the trainer handed it over.
    """

    pack: str
    lanes: Sequence[tuple[int, int]]
    state: bytes


class Checkpoints:
    """The checkpoints of one sweep; only its driver writes them.

    Args:
        root: The sweep directory.
    """

    def __init__(self, root: Location) -> None:
        self._place = place_at(root)
        self._latest: dict[str, bytes] = {}

    def put(self, order: "PackOrder", state: bytes) -> None:
        """Keeps a pack's state in the place of an earlier one."""
        table = pa.table(
            {
                "trial": [[task.trial for task in order.tasks]],
                "replicate": [[task.replicate for task in order.tasks]],
                "state": [state],
            },
            _SCHEMA,
        )

        def write(path: Path) -> None:
            # The state is numbers that do not compress.
            pq.write_table(table, path, compression="none", write_page_checksum=True)

        self._place.make_folders([FOLDER])
        self._place.publish(order.pack, {FOLDER: write})
        self._latest[order.pack] = state

    def latest(self, pack: str) -> bytes | None:
        """The last state of a pack."""
        return self._latest.get(pack)

    def remove(self, pack: str) -> None:
        """Forgets a pack."""
        if self._latest.pop(pack, None) is not None:
            self._place.remove(FOLDER, [f"{pack}.parquet"])

    def load(self) -> list[Saved]:
        """All that an earlier run has left. Unreadable ones are removed."""
        if not self._place.has_folder(FOLDER):
            return []
        self._place.remove(FOLDER, self._place.unfinished(FOLDER))
        found = [(pack, self._read(pack)) for pack in sorted(self._place.names(FOLDER))]
        for pack, saved in found:
            self._latest[pack] = saved.state if saved else b""
            if saved is None:
                self.remove(pack)
        return [saved for _, saved in found if saved]

    def _read(self, pack: str) -> Saved | None:
        try:
            with self._place.answering(), self._place.open_file(FOLDER, pack) as file:
                (row,) = pq.read_table(file, page_checksum_verification=True).to_pylist()
            return Saved(pack, list(zip(row["trial"], row["replicate"], strict=True)), row["state"])
        except (FileNotFoundError, pa.ArrowException, ValueError, KeyError):
            return None
