"""Writes the files of a sweep directory: each under a temporary name, flushed to the disk and then renamed, so that no
crash leaves half a file. In the local copy of an object store it is also uploaded before the call returns."""

import hashlib
import os
import stat
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from attnsweep.orchestrator.storage.copies import is_copy
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:  # every command imports this module, and pyarrow would be a third of the time of `--help`
    from pyarrow import NativeFile

ASIDE = "set_aside"
"""Folder of files that are not read any more; the user may delete them."""


def digest(file: "BufferedReader | NativeFile") -> str:
    """The first half of its sha256, in hexadecimal."""
    return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def check_makeable(place: Path) -> None:
    """Raises OSError if no file could be written there. Leaves nothing behind."""
    nearest = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())
    with TemporaryFile(dir=nearest):  # permission bits do not tell whether root may write
        pass


def is_vacant(place: Path) -> bool:
    """Whether a new sweep may go there. Names that begin with a dot are locks, or left by a process that was killed."""
    names = sizes(place) if is_copy(place) or not place.is_dir() else [path.name for path in place.iterdir()]
    return not place.is_file() and all(name.startswith(".") for name in names)


def sizes(place: Path) -> dict[str, int]:
    """Bytes of all files of a folder or an object store, by their names below the place."""
    if is_copy(place):
        from attnsweep.orchestrator.storage.object_store import sizes_of_objects

        return sizes_of_objects(place)
    n_bytes = {}
    for path in (Path(folder, file) for folder, _, files in os.walk(place) for file in files):
        with suppress(FileNotFoundError):  # a running sweep removes files
            n_bytes[str(path.relative_to(place))] = path.lstat().st_size
    return n_bytes


def read_text(path: Path) -> str:
    # `Path.read_text` would translate line endings, and so hide damage in them.
    with naming(path):
        return regular_file(path).read_bytes().decode()


def write_text(place: Path, name: str, text: str, *, durable: bool = True) -> None:
    """Replaces a text of a sweep; `name` may have a folder. Unless `durable`, a crash of the machine may undo it."""
    path = place / name
    temporary = path.with_name(f".{path.name}.tmp")
    with naming(path):
        own_folder(place, path.parent.name if "/" in name else "")
        temporary.unlink(missing_ok=True)  # what a killed process left; and no link is followed
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            sync(path.parent)
    upload(path)


def publish(place: Path, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
    """Writes one Parquet file to each of several folders, in order, under one name, which is returned: `stem` and the
    `digest` of the last file. The functions that write contents are all called before the first file gets its name."""
    temporaries = {folder: own_folder(place, folder) / f".{stem}.{uuid.uuid4().hex}.tmp" for folder in files}
    try:
        for folder, write in files.items():
            with naming(temporaries[folder]):
                write(temporaries[folder])
                sync(temporaries[folder])
        with temporaries[folder].open("rb") as last:
            name = f"{stem}-{digest(last)}"
        for folder, temporary in temporaries.items():
            temporary.replace(place / folder / f"{name}.parquet")
            sync(place / folder)
    except (OSError, UserError):
        for temporary in temporaries.values():  # at once, because the disk may be full
            temporary.unlink(missing_ok=True)
        raise
    for folder in files:
        upload(place / folder / f"{name}.parquet")
    return name


def remove(paths: Collection[Path]) -> None:
    """Durable when the call returns."""
    for path in paths:
        path.unlink()
    for folder in {path.parent for path in paths}:
        sync(folder)
    _delete(paths)


def set_aside(place: Path, folder: str, name: str) -> None:
    """Moves a Parquet file to `set_aside/<folder>`."""
    own_folder(place, ASIDE)
    path, aside = place / folder / f"{name}.parquet", own_folder(place, f"{ASIDE}/{folder}")
    moved = aside / path.name
    path.replace(moved)
    sync(aside)
    sync(path.parent)
    upload(moved)
    _delete([path])


def upload(path: Path) -> None:
    """Does nothing outside the copies of object stores."""
    if is_copy(path):
        from attnsweep.orchestrator.storage.object_store import upload as upload_file

        upload_file(path)


def _delete(paths: Collection[Path]) -> None:
    if paths and is_copy(next(iter(paths))):
        from attnsweep.orchestrator.storage.object_store import delete

        delete(paths)


def parquet_names(folder: Path) -> list[str]:
    """Without the suffix; none if there is no folder."""
    return [name.removesuffix(".parquet") for name in _listed(folder) if name.endswith(".parquet")]


def unfinished(folder: Path) -> Sequence[Path]:
    """Temporary files that an interrupted `publish` left."""
    return [folder / name for name in _listed(folder) if name.startswith(".") and name.endswith(".tmp")]


def open_file(path: Path) -> "NativeFile":
    """It stays readable after its removal."""
    from pyarrow import OSFile  # imported here, because pyarrow would slow down every command

    with naming(path):
        return OSFile(str(regular_file(path)))


def _listed(folder: Path) -> list[str]:
    # Unlike `Path.glob`, this raises all other errors.
    with suppress(FileNotFoundError, NotADirectoryError):
        return [path.name for path in folder.iterdir()]
    return []


def own_folder(place: Path, folder: str) -> Path:
    """Made if needed; "" is the sweep's place itself."""
    path = refuse_link(place / folder) if folder else place
    path.mkdir(exist_ok=True)
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the path to every OSError that names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def regular_file(path: Path) -> Path:
    """Raises OSError for anything else: opening a FIFO would block, and reading a device might not end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(None, "this path is not a regular file", str(path))
    return path


def is_damage(error: Exception) -> bool:
    """Whether an error shows that a file is missing or not as it was written. One with a number, such as EIO or EMFILE,
    says nothing about the content; those of pyarrow's readers have none."""
    return getattr(error, "errno", None) is None or isinstance(error, FileNotFoundError)


def refuse_link(path: Path) -> Path:
    """In a sweep directory that a stranger made, a link could redirect writes to any file."""
    if path.is_symlink():
        expected = "a file or folder of the sweep's own, since it is written to"
        fix = "remove the link; if you made it, move its target here"
        raise UserError(str(path), given="a symbolic link", expected=expected, fix=fix)
    return path


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
