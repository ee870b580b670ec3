import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from attnsweep.orchestrator.storage.locks import LEASE_FILE

if TYPE_CHECKING:  # every command imports this module, and pyarrow would be a third of the time of `--help`
    from pyarrow import NativeFile

T = TypeVar("T")
R = TypeVar("R")

ASIDE = "set_aside"
"""Folder of files that were set aside: they are not read any more, and the user may delete them."""
CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints of unfinished packs, which are groups of trainings that share one batched program."""


def digest(file: "BufferedReader | NativeFile") -> str:
    """The first half of its sha256, in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:32]


class Lock(Protocol):
    def confirm(self) -> None:
        """Raises UserError if another process has taken it since."""

    def close(self) -> None:
        """Idempotent."""


class Place(Protocol):
    """Where one sweep is stored: texts (`sweep.json`), Parquet files (`trainings/<name>.parquet`), its writer's lock.

    Rules for implementations: Writes are atomic: even if the process is killed, a file is complete or does not exist. A
    write or removal is durable, and visible to every later reader, once the call returns. No write follows a link in
    the place, because a stranger may have made the link. An error that the user can fix, except FileNotFoundError, is a
    UserError of one line without credentials.

    Attributes:
        n_at_once: Number of files to open concurrently: above 1 if opening a file takes a request over the network.
        full_name: The place's name for a reader on another machine.
    """

    n_at_once: int

    @property
    def full_name(self) -> str: ...

    def answering(self, file: str | None = None) -> AbstractContextManager[None]:
        """For reading an open file. If the disk or the store fails, raises a UserError that names the file.

        If the context raises an OSError, the file is damaged: see `storage.errors`.
        """

    def inside(self, folder: str) -> Self:
        """The place of a folder in this place. Raises UserError for a link."""

    def is_vacant(self) -> bool:
        """Whether the place is empty or does not exist."""

    def check_makeable(self) -> None:
        """Raises OSError if `make` would probably fail. Leaves nothing behind."""

    def make(self) -> None:
        """Creates the folder, or its counterpart, unless it exists. Raises OSError if that fails."""

    def has_text(self, name: str) -> bool: ...

    def read_text(self, name: str) -> str:
        """Raises OSError if there is no such text file."""

    def put_text(self, name: str, text: str, *, durable: bool = True) -> None:
        """Replaces a text, atomically and durably; for `folder/name` the folder is made too. With `durable=False` a
        crash of the machine may undo it."""

    def put_new_text(self, name: str, text: str) -> None:
        """Of several concurrent writers one succeeds; the others get a FileExistsError."""

    def has_folder(self, folder: str) -> bool: ...

    def folders(self) -> list[str]:
        """Links are left out."""

    def make_folders(self, folders: Collection[str]) -> None: ...

    def sizes(self, pass_over: Callable[[OSError], object] | None = None) -> dict[str, int]:
        """Bytes of all files here and below, by relative path. Links are not followed. `pass_over` gets the error for
        what cannot be read now; without it, a StoreError is raised."""

    def names(self, folder: str) -> list[str]:
        """The Parquet files in a folder, without the suffix."""

    def unfinished(self, folder: str) -> list[str]:
        """Temporary files that an interrupted `publish` left."""

    def file_name(self, folder: str, name: str) -> str:
        """A Parquet file's full name, for messages."""

    def open_file(self, folder: str, name: str) -> "NativeFile":
        """It stays readable after its removal.

        Raises FileNotFoundError, with the `file_name` as its `filename`, if there is no such Parquet file."""

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """Writes one Parquet file to each of several folders, in order, under one name, which is returned.

        Args:
            stem: The beginning of the name. The name ends with the `digest` of the last file.
            files: For each folder, a function that writes the file's content to a local path. All are called, in their
                order, before the first file is published.
        """

    def remove(self, folder: str, files: Collection[str]) -> None:
        """Removes files, given with their suffix; the folder "" is the place itself. Durable when the call returns."""

    def set_aside(self, folder: str, name: str) -> None:
        """Moves a Parquet file to `set_aside/<folder>`, where it is not read any more."""

    def lock(self, work: str, file: str = LEASE_FILE) -> Lock:
        """Takes the sweep's lock, or the one of `file`. If another process holds it, the UserError names that."""


def at_once(call: Callable[[T], R], items: Iterable[T], n_at_once: int) -> list[R]:
    """Calls a function that waits for a disk or network on up to `n_at_once` items concurrently. Keeps their order."""
    if n_at_once == 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(n_at_once) as threads:
        return list(threads.map(call, items))
