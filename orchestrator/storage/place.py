"""The contract of a place: a folder, or a prefix of an object store, that holds one sweep."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import Protocol, Self

import pyarrow as pa

from attnsweep.orchestrator.storage.lease import LEASE_FILE

ASIDE = "set_aside"
"""The folder of files that no longer count. The user may delete them."""
CHECKPOINTS = "checkpoints"
"""The folder of the states of unfinished packs."""


def digest(file: BufferedReader | pa.NativeFile) -> str:
    """The first half of a file's sha256, in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:32]


class Lock(Protocol):
    """The exclusive right to write a sweep."""

    def confirm(self) -> None:
        """Returns if the lock is still held.

        Raises:
            UserError: If another process has taken it.
        """

    def close(self) -> None:
        """Releases the lock. Idempotent."""


class Place(Protocol):
    """A sweep's texts (`sweep.json`) and Parquet files (`trainings/<name>.parquet`), and the lock of its one writer.

    Implementers: writes are atomic: whenever the process is killed, a file exists completely under its name, or not at
    all. A write or removal is durable, and visible to every later reader, once the call returns. Nothing is written
    through a link in the place, because a stranger may have made it. An error that the user can fix, except
    FileNotFoundError, is a UserError of one line without credentials.

    Attributes:
        pins_open_files: Whether an opened file can be read after its removal.
        n_at_once: Number of files to open concurrently: above 1 if each takes a round trip.
        full_name: The place's name for a reader on another machine.
    """

    pins_open_files: bool
    n_at_once: int

    @property
    def full_name(self) -> str: ...

    def answering(self, file: str | None = None) -> AbstractContextManager[None]:
        """A context for reading an opened file, by its `file_name`: errors of the disk or store become those above.

        An OSError that still leaves it means that the file is damaged: see `storage.reading`.
        """

    def inside(self, folder: str) -> Self:
        """A place of its own in a folder of this one. Raises UserError if a link is there."""

    def is_vacant(self) -> bool:
        """Whether a new sweep can be created in it: it does not exist or is empty."""

    def check_makeable(self) -> None:
        """Checks that `make` can make it, as far as that shows without leaving anything there. Raises OSError."""

    def make(self) -> None:
        """Creates the place, if it must be created. Raises OSError."""

    def has_text(self, name: str) -> bool: ...

    def read_text(self, name: str) -> str:
        """The content of a text. Raises OSError if it does not exist or is no file."""

    def put_text(self, name: str, text: str) -> None:
        """Writes a text; an earlier one of that name is replaced. A name may be `folder/name`: the folder is made."""

    def put_passing_text(self, name: str, text: str) -> None:
        """As `put_text`, atomic but not durable: for texts that are worthless after a crash."""

    def put_new_text(self, name: str, text: str) -> None:
        """Writes a text. Of several writers at once one succeeds. Raises FileExistsError if there is one already."""

    def has_folder(self, folder: str) -> bool: ...

    def folders(self) -> list[str]:
        """The names of the folders in the place. Links are left out."""

    def make_folders(self, folders: Collection[str]) -> None: ...

    def sizes(self, pass_over: Callable[[OSError], object] | None = None) -> dict[str, int]:
        """The bytes of every file below the place, by its path there. Links are not followed.

        Args:
            pass_over: Called for what lies below and cannot be read now; without it, that is an error.
        """

    def names(self, folder: str) -> list[str]:
        """The names of a folder's Parquet files, without the suffix."""

    def unfinished(self, folder: str) -> list[str]:
        """The names of files that an interrupted `publish` has left."""

    def file_name(self, folder: str, name: str) -> str:
        """The name of a Parquet file in messages."""

    def open_file(self, folder: str, name: str) -> pa.NativeFile:
        """Opens a Parquet file. Raises FileNotFoundError, with `file_name` as its `filename`, if it does not exist."""

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """Publishes a Parquet file of one name in each of these folders, in their order.

        Args:
            stem: The beginning of the name. The `digest` of the last file is its end.
            files: By folder, a function that writes the file's content to a local path. All are called, in their order,
                before the first file is published.

        Returns:
            The name.
        """

    def remove(self, folder: str, files: Collection[str]) -> None:
        """Removes files of a folder, "" for the place itself, named with their suffix. Durable once this returns."""

    def set_aside(self, folder: str, name: str) -> None:
        """Moves a Parquet file to `set_aside/<folder>`, where no reader looks."""

    def lock(self, work: str, file: str = LEASE_FILE) -> Lock:
        """Takes the lock, or another one of this file. Raises UserError, which names the holder and its command, if
        another process has it."""
