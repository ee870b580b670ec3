"""The interface of a place, which is where one sweep is stored: a folder, or a prefix of an object store."""

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
    """Returns a digest of a file's content: the first half of its sha256, in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:32]


class Lock(Protocol):
    """Interface for the lock that gives one process the right to write to a sweep."""

    def confirm(self) -> None:
        """Raises UserError if another process has taken this lock since this process took it."""

    def close(self) -> None:
        """Releases the lock, so that another process may write to the sweep. A second call does nothing."""


class Place(Protocol):
    """Interface for the place where one sweep is stored: its texts (`sweep.json`), its Parquet files
    (`trainings/<name>.parquet`), and the lock of its only writer.

    Rules for implementations: Writes are atomic: even if the process is killed, a file is complete or does not exist. A
    write or removal is durable, and visible to every later reader, once the call returns. No write follows a link in
    the place, because a stranger may have made the link. An error that the user can fix, except FileNotFoundError, is a
    UserError of one line without credentials.

    Attributes:
        pins_open_files: Whether an opened file can be read after its removal.
        n_at_once: Number of files to open concurrently: above 1 if opening a file takes a request over the network.
        full_name: The place's name for a reader on another machine.
    """

    pins_open_files: bool
    n_at_once: int

    @property
    def full_name(self) -> str: ...

    def answering(self, file: str | None = None) -> AbstractContextManager[None]:
        """A context for reading an open file. If the disk or the store fails, raises a UserError that names the file.

        If the context raises an OSError, the file is damaged: see `storage.errors`.
        """

    def inside(self, folder: str) -> Self:
        """Returns an object that reads and writes the files of a folder in this place, as this one does for the whole
        place. Raises UserError if the folder's name is that of a link."""

    def is_vacant(self) -> bool:
        """Returns whether a new sweep can be created here: whether the place is empty or does not exist."""

    def check_makeable(self) -> None:
        """Checks that `make` can probably create the folder in which a sweep is to be stored. Raises OSError otherwise.
        Leaves nothing behind."""

    def make(self) -> None:
        """Creates the folder in which a sweep is to be stored, or its counterpart in an object store, unless it exists.
        Raises OSError if that fails."""

    def has_text(self, name: str) -> bool: ...

    def read_text(self, name: str) -> str:
        """Returns the content of a text file. Raises OSError if there is no such text file."""

    def put_text(self, name: str, text: str, *, durable: bool = True) -> None:
        """Writes a text file, atomically and durably, replacing an earlier one of the same name. For the name
        `folder/name` the folder is made too.

        With `durable=False` a crash of the machine may undo the write.
        """

    def put_new_text(self, name: str, text: str) -> None:
        """Writes a text under a name that does not exist yet. Of several concurrent writers one succeeds; the others
        get a FileExistsError."""

    def has_folder(self, folder: str) -> bool: ...

    def folders(self) -> list[str]:
        """Returns the names of the folders in this place. Links are left out."""

    def make_folders(self, folders: Collection[str]) -> None: ...

    def sizes(self, pass_over: Callable[[OSError], object] | None = None) -> dict[str, int]:
        """Returns the sizes in bytes of all files in this folder (or this prefix of an object store) and in its
        subfolders, by relative path. Links are not followed.

        Args:
            pass_over: Is called with the error for each file or folder that cannot be read now. Without this function,
                the error is raised as a StoreError.
        """

    def names(self, folder: str) -> list[str]:
        """Returns the names of the Parquet files in a folder of this place, without the suffix `.parquet`."""

    def unfinished(self, folder: str) -> list[str]:
        """Returns the names of temporary files that were left when `publish` was interrupted."""

    def file_name(self, folder: str, name: str) -> str:
        """Returns the full name of a Parquet file for messages: where the sweep is stored, the folder and the file's
        name."""

    def open_file(self, folder: str, name: str) -> "NativeFile":
        """Opens a Parquet file for reading. Raises FileNotFoundError if the file does not exist.

        The attribute `filename` of this error is the name that the method `file_name` returns, as for messages.
        """

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """Writes one Parquet file to each of several folders, in the given order, under the same name.

        Args:
            stem: The beginning of the name. The name ends with the `digest` of the last file.
            files: For each folder, a function that writes the file's content to a local path. All are called, in their
                order, before the first file is published.

        Returns:
            The name of the files, without the suffix.
        """

    def remove(self, folder: str, files: Collection[str]) -> None:
        """Removes files from a folder of this place; the folder "" is the place itself. The names of the files include
        their suffix, such as `.parquet`.

        The removal is durable when the call returns.
        """

    def set_aside(self, folder: str, name: str) -> None:
        """Moves a Parquet file to the folder `set_aside/<folder>`. Files there are not read any more."""

    def lock(self, work: str, file: str = LEASE_FILE) -> Lock:
        """Takes the sweep's lock or, if `file` is given, another lock, such as the one for logging the sweep to MLflow.
        If another process holds the lock, raises a UserError that names the process and its command."""


def at_once(call: Callable[[T], R], items: Iterable[T], n_at_once: int) -> list[R]:
    """Calls a function on each item, up to `n_at_once` items concurrently, and returns the results in order. For
    functions that wait for a disk or network."""
    if n_at_once == 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(n_at_once) as threads:
        return list(threads.map(call, items))
