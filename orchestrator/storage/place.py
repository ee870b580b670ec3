"""What a place must do for the one sweep that lives in it."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

import pyarrow as pa

ASIDE = "set_aside"
"""The folder of files that do not count any more, and are the user's to throw away."""


def digest(file: BufferedReader | pa.NativeFile) -> str:
    """Of a file's every byte: the first half of its sha256, in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:32]


class Lock(Protocol):
    """The right to be a sweep's one writer."""

    def confirm(self) -> None:
        """Returns if it is still held.

        Raises:
            UserError: If another process has taken it.
        """

    def close(self) -> None:
        """Gives it back. Idempotent."""


class Place(Protocol):
    """A sweep's texts (`sweep.json`) and Parquet files (`trainings/<name>.parquet`), and the lock of its one writer.

    Implementers: whenever the process is killed, a file is there whole, under its name, or not at all. A write or
    removal is durable, and seen by every later reader, once the call returns. Nothing is written through a link in the
    place, since a stranger may have made it. An error that the user can fix, except FileNotFoundError, is a UserError
    of one line without credentials.

    Attributes:
        pins_open_files: Whether an opened file can be read after it was removed.
        n_at_once: Files worth opening at once: above 1 where each takes a round trip.
        full_name: For a reader elsewhere.
    """

    pins_open_files: bool
    n_at_once: int

    @property
    def full_name(self) -> str: ...

    def answering(self) -> AbstractContextManager[None]:
        """Around reading an opened file: an error of the place's becomes one of those above."""

    def is_vacant(self) -> bool:
        """Whether nothing stands in the way of a new sweep."""

    def check_makeable(self) -> None:
        """Checks that `make` can make it, as far as that shows without leaving anything there. Raises OSError."""

    def make(self) -> None:
        """Makes it, where that takes anything. Raises OSError."""

    def has_text(self, name: str) -> bool: ...

    def read_text(self, name: str) -> str:
        """Raises OSError."""

    def put_text(self, name: str, text: str) -> None:
        """Writes a text, over an earlier one of that name."""

    def put_passing_text(self, name: str, text: str) -> None:
        """As `put_text`, for what is worth nothing after a crash: there whole or not at all, but it need not stay."""

    def put_new_text(self, name: str, text: str) -> None:
        """Writes a text. Raises FileExistsError if it is there; an object store need not, while another writes it."""

    def has_folder(self, folder: str) -> bool: ...

    def make_folders(self, folders: Collection[str]) -> None: ...

    def names(self, folder: str) -> list[str]:
        """The Parquet files of a folder, without the suffix."""

    def unfinished(self, folder: str) -> list[str]:
        """File names that an interrupted `publish` left."""

    def file_name(self, folder: str, name: str) -> str:
        """The Parquet file as a message names it."""

    def open_file(self, folder: str, name: str) -> pa.NativeFile:
        """Raises FileNotFoundError if it is gone; its `filename` is `file_name`."""

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """Makes a Parquet file of one name appear in each of these folders, in their order.

        Args:
            stem: Begins the name; the `digest` of the last file ends it.
            files: By folder, what writes the file's content to a local path. They are called in their order, all before
                the first file appears.

        Returns:
            The name.
        """

    def remove(self, folder: str, files: Collection[str]) -> None:
        """Removes files by their full names. Durable once this returns."""

    def set_aside(self, folder: str, name: str) -> None:
        """Moves a Parquet file to `set_aside/<folder>`, where no reader looks."""

    def lock(self, work: str) -> Lock:
        """Raises UserError if another process has it: which, and at what work."""
