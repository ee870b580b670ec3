"""A sweep in a local folder. Each file is written under a temporary name, flushed to the disk and then renamed, so that
no crash leaves half a file."""

import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from attnsweep.orchestrator.storage.errors import NO_ROOM, is_damage, is_fault, reading, store_error
from attnsweep.orchestrator.storage.locks import LEASE_FILE, Owner, taken
from attnsweep.orchestrator.storage.place import ASIDE, digest
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from pyarrow import NativeFile


@dataclass(frozen=True, slots=True)
class FileLock:
    """A kernel lock (flock) on a file that contains the owner. It ends with `close` or with the process."""

    file: FileIO

    def sign(self, owner: Owner) -> None:
        """Writes the new owner's name.

        On a full disk the old content is removed, nothing is written, and no error is raised: the lock is held all the
        same, so that `attnsweep compact` can run and free the disk.
        """
        with naming(Path(self.file.name)):
            self.file.truncate(0)
            try:
                self.file.write(owner.to_json().encode())
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise

    def confirm(self) -> None:
        """A kernel lock cannot be taken from the process that holds it."""

    def close(self) -> None:
        if not self.file.closed:
            # The owner's name is removed from the lock file if possible. If it stays, it does no harm, so a disk error
            # is ignored here and the lock is still released.
            with suppress(OSError):
                self.file.truncate(0)
            with suppress(OSError):
                self.file.close()


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder that holds a sweep. POSIX lets an open file be read even after it was removed."""

    path: Path

    n_at_once = 1

    def __str__(self) -> str:
        return str(self.path)

    @property
    def full_name(self) -> str:
        return str(self.path.resolve())

    def answering(self, file: str | None = None) -> AbstractContextManager[None]:
        return reading(file or str(self))

    def inside(self, folder: str) -> "LocalFolder":
        return LocalFolder(refuse_link(self.path / folder))

    def is_vacant(self) -> bool:
        with reading(str(self.path)):
            if not self.path.exists():
                return True
            # If an earlier process was killed, it may have left an unfinished record under a temporary name. Such files
            # are ignored.
            return self.path.is_dir() and all(
                path.name.startswith(".") and path.suffix in (".new", ".tmp") and path.is_file()
                for path in self.path.iterdir()
            )

    def check_makeable(self) -> None:
        path = self.path.absolute()
        nearest = next(folder for folder in (path, *path.parents) if folder.is_dir())
        # A temporary file is created as a test, because permission bits do not tell whether root may write.
        with TemporaryFile(dir=nearest):
            pass

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def has_text(self, name: str) -> bool:
        return self._status(name) is not None

    def read_text(self, name: str) -> str:
        # The file is read as bytes. `Path.read_text` would translate line endings, and so hide damage in them.
        with reading(str(self.path / name)):
            return regular_file(self.path / name).read_bytes().decode()

    def put_text(self, name: str, text: str, *, durable: bool = True) -> None:
        folder, _, base = name.rpartition("/")
        parent = self._own(folder) if folder else self.path
        temporary = parent / f".{base}.tmp"
        with self.writing(), naming(self.path / name):
            if folder:
                parent.mkdir(exist_ok=True)
            try:
                with open(temporary, "w", encoding="utf-8", opener=_without_following) as file:
                    file.write(text)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                temporary.replace(parent / base)
                if durable:
                    sync(parent)
            except OSError:
                with suppress(OSError):
                    temporary.unlink()
                raise

    def put_new_text(self, name: str, text: str) -> None:
        # A file lock ensures that only one process creates the file. A hard link would do so too, but some file systems
        # have none. If the process is killed, the kernel releases the lock.
        path = self.path / f".{name}.new"
        with open(path, "w", opener=_without_following) as claim:
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = os.path.samestat(os.fstat(claim.fileno()), path.stat())
            except (BlockingIOError, FileNotFoundError):
                is_ours = False
            try:
                if not is_ours or self.has_text(name):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
                self.put_text(name, text)
            finally:
                if is_ours:
                    path.unlink()

    def has_folder(self, folder: str) -> bool:
        status = self._status(folder)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def folders(self) -> list[str]:
        with reading(str(self.path)):
            return [path.name for path in self.path.iterdir() if path.is_dir() and not path.is_symlink()]

    def make_folders(self, folders: Collection[str]) -> None:
        with self.writing():
            for folder in folders:
                self._own(folder).mkdir(exist_ok=True)
            sync(self.path)

    def sizes(self, pass_over: Callable[[OSError], object] | None = None) -> dict[str, int]:
        n_bytes = {}

        def failed(error: OSError) -> None:
            # A missing file or folder is no error here, because a running sweep may have removed it. It is no error
            # either if `self.path` is a file.
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return
            if pass_over is None or error.filename == str(self.path):
                raise store_error(error.filename, error) from error
            pass_over(error)

        for folder, _, files in os.walk(self.path, onerror=failed):
            for file in files:
                path = Path(folder, file)
                try:
                    n_bytes[str(path.relative_to(self.path))] = path.lstat().st_size
                except OSError as error:
                    failed(error)
        return n_bytes

    def names(self, folder: str) -> list[str]:
        return [name.removesuffix(".parquet") for name in self._listed(folder) if name.endswith(".parquet")]

    def unfinished(self, folder: str) -> list[str]:
        return [name for name in self._listed(folder) if name.startswith(".") and name.endswith(".tmp")]

    def file_name(self, folder: str, name: str) -> str:
        return str(self._file(folder, name))

    def open_file(self, folder: str, name: str) -> "NativeFile":
        from pyarrow import OSFile  # imported here, because pyarrow would slow down every command

        path = self._file(folder, name)
        try:
            with reading(str(path)):
                return OSFile(str(regular_file(path)))
        except FileNotFoundError as gone:
            raise FileNotFoundError(gone.errno, gone.strerror, str(path)) from gone
        except OSError as error:
            if error.errno is not None:
                raise
            # Opening a file does not parse it. So an OSError of Arrow without an error number means that the system
            # call fstat failed, not that the file is damaged.
            raise store_error(str(path), error) from error

    def publish(self, stem: str, files: Mapping[str, Callable[[Path], None]]) -> str:
        """All files are on the disk under temporary names before the first one gets its final name."""
        temporaries = {folder: self._own(folder) / f".{stem}.{uuid.uuid4().hex}.tmp" for folder in files}
        with self.writing():
            try:
                for folder, write in files.items():
                    with naming(temporaries[folder]):
                        write(temporaries[folder])
                        sync(temporaries[folder])
                with naming(temporaries[folder]), temporaries[folder].open("rb") as last:
                    name = f"{stem}-{digest(last)}"
                for folder, temporary in temporaries.items():
                    _rename(temporary, self._file(folder, name))
            except (OSError, UserError):
                # Unfinished files are removed at once, because the disk may be full. If the process is killed before,
                # the next writer removes them.
                for temporary in temporaries.values():
                    with suppress(OSError):
                        temporary.unlink()
                raise
        return name

    def remove(self, folder: str, files: Collection[str]) -> None:
        path = self._own(folder) if folder else self.path
        with self.writing():
            for file in files:
                if (path / file).is_dir() and not (path / file).is_symlink():
                    given = "a folder in the place of a file"
                    fix = "remove the folder"
                    raise UserError(str(path / file), given=given, expected="a file that attnsweep wrote", fix=fix)
                (path / file).unlink()
            if files:
                sync(path)

    def set_aside(self, folder: str, name: str) -> None:
        self._own(ASIDE)
        aside = self._own(f"{ASIDE}/{folder}")
        with self.writing():
            aside.mkdir(parents=True, exist_ok=True)
            path = self._file(folder, name)
            _rename(path, aside / path.name)
            sync(path.parent)

    def lock(self, work: str, file: str = LEASE_FILE) -> FileLock:
        path = self.path / file
        try:
            # The lock file is opened for appending, so that the name of the current holder stays in it.
            opened = FileIO(path, "a+", opener=_without_following)
        except OSError as error:
            if is_fault(error):
                raise store_error(str(path), error) from error
            expected = "a sweep directory that can be written"
            fix = "check the path, or ask the directory's owner for write access"
            raise UserError(str(path), given=error.strerror, expected=expected, fix=fix) from error
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with reading(str(path)), opened:
                opened.seek(0)
                owner = Owner.from_json(opened.read().decode(errors="replace"))
            raise taken(
                str(self.path), owner, "wait until the process that works on the sweep ends, or stop it"
            ) from error
        except OSError as error:
            with self.writing(), naming(path), opened:
                raise error
        lock = FileLock(opened)
        try:
            with self.writing():
                lock.sign(Owner.this_process(work))
        except BaseException:
            lock.close()
            raise
        return lock

    def _file(self, folder: str, name: str) -> Path:
        return self.path / folder / f"{name}.parquet"

    def _status(self, name: str) -> os.stat_result | None:
        """`None` if nothing is there. Unlike `Path.exists`, raises all other errors."""
        with reading(str(self.path / name)):
            try:
                return (self.path / name).stat()
            except OSError as error:
                if is_damage(error):
                    return None
                raise

    def _listed(self, folder: str) -> list[str]:
        """Nothing if there is no folder. Unlike `Path.glob`, raises all other errors."""
        with reading(str(self.path / folder)), suppress(FileNotFoundError, NotADirectoryError):
            return [path.name for path in (self.path / folder).iterdir()]
        return []

    def _own(self, folder: str) -> Path:
        with reading(str(self.path)):
            return refuse_link(self.path / folder)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Converts an OSError to a StoreError."""
        try:
            yield
        except OSError as error:
            raise store_error(str(self.path), error, "a sweep directory that can be written") from error


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
        raise OSError(errno.EINVAL, "this path is not a regular file", str(path))
    return path


def refuse_link(path: Path) -> Path:
    """In a sweep directory that a stranger made, a link could redirect writes to any file."""
    if path.is_symlink():
        raise _link(path)
    return path


def _link(path: Path) -> UserError:
    expected = "a file or folder of the sweep's own, since it is written to"
    fix = "remove the link; if you made it, move its target here"
    return UserError(str(path), given="a symbolic link", expected=expected, fix=fix)


def _without_following(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(Path(path)) from error
        raise


def _rename(path: Path, target: Path) -> None:
    """Durable once it returns."""
    path.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of files, is safely on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
