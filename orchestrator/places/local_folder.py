"""A sweep in a folder: files are written under another name, fsynced, renamed, and their folder is fsynced."""

import fcntl
import os
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class FileLock:
    """A lock of the kernel's: it ends with `close`, or with the process."""

    file: IO[bytes]

    def confirm(self) -> None:
        """Nothing to do: nobody can take it."""

    def close(self) -> None:
        """Gives it back."""
        self.file.close()


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder. An opened file outlives its removal, as POSIX has it."""

    path: Path

    pins_open_files = True
    n_at_once = 1

    def __str__(self) -> str:
        return str(self.path)

    @property
    def full_name(self) -> str:
        return str(self.path.resolve())

    def answering(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_vacant(self) -> bool:
        return not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def has_text(self, name: str) -> bool:
        return (self.path / name).exists()

    def read_text(self, name: str) -> str:
        return (self.path / name).read_text()

    def put_text(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.tmp"
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path / name)

    def has_folder(self, folder: str) -> bool:
        return (self.path / folder).is_dir()

    def make_folders(self, folders: Collection[str]) -> None:
        for folder in folders:
            (self.path / folder).mkdir(exist_ok=True)
        sync(self.path)

    def names(self, folder: str) -> list[str]:
        return [path.stem for path in (self.path / folder).glob("*.parquet")]

    def unfinished(self, folder: str) -> list[str]:
        return [path.name for path in (self.path / folder).glob(".*.tmp")]

    def file_name(self, folder: str, name: str) -> str:
        return str(self._file(folder, name))

    def open_file(self, folder: str, name: str) -> pa.NativeFile:
        path = str(self._file(folder, name))
        try:
            return pa.OSFile(path)
        except FileNotFoundError as gone:
            raise FileNotFoundError(gone.errno, gone.strerror, path) from gone

    def publish(self, name: str, files: Mapping[str, Callable[[Path], None]]) -> None:
        """All files are on the disk before the first gets its name."""
        temporaries = {}
        for folder, write in files.items():
            temporary = self.path / folder / f".{name}.{uuid.uuid4().hex}.tmp"
            write(temporary)
            sync(temporary)
            temporaries[folder] = temporary
        for folder, temporary in temporaries.items():
            temporary.replace(self._file(folder, name))
            sync(self.path / folder)

    def remove(self, folder: str, files: Collection[str]) -> None:
        for file in files:
            (self.path / folder / file).unlink()
        if files:
            sync(self.path / folder)

    def lock(self) -> FileLock:
        try:
            file = (self.path / ".ledger.lock").open("wb")
        except OSError as error:
            raise UserError(
                str(self.path),
                given=error.strerror,
                expected="a sweep directory that can be written",
                mend="give the directory that `attnsweep run` printed, or its owner's rights",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise UserError(
                str(self.path),
                given="a sweep that another process works on",
                expected="one at a time",
                mend="wait until its run, compact or mlflow-sync ends, or stop it",
            ) from error
        return FileLock(file)

    def _file(self, folder: str, name: str) -> Path:
        return self.path / folder / f"{name}.parquet"


def sync(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
