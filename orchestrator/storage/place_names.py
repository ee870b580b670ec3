"""Converts a directory or URI that the user typed to the place where a sweep is stored, and back.

Only an `s3://` URI loads the client of object stores. Places in the folder of a Ray session, such as a job's working
directory, are refused, because Ray deletes that folder.
"""

import os
import re
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import is_fault, store_error
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place import Place
from attnsweep.workloads.errors import UserError, did_you_mean

PlaceName: TypeAlias = str | os.PathLike[str] | Place
"""A sweep's place: a path or URI, or the place that `place_of` has made of it."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9._-]{2,62})/(?P<prefix>[^?#]+)")


def place_of(where: PlaceName, subject: str = "DIR") -> Place:
    """The place that a user named: a directory, which need not exist, or `s3://BUCKET/PREFIX`.

    Sends no request to an object store. Returns `where` itself if it is a place already.

    Raises:
        UserError: For a path that can lead nowhere, another kind of URI, or one with credentials in it.
        StoreError: If a disk does not answer.
    """
    if not isinstance(where, str | os.PathLike):
        return where
    text = os.fspath(where)
    if not text:
        fix = "give a directory, for example . for the current folder"
        raise UserError(subject, given=text, expected="a directory, or s3://BUCKET/PREFIX", fix=fix)
    if not _SCHEME.match(text):
        return LocalFolder(_reachable(Path(text), subject))
    if "@" in text.partition("//")[2].partition("/")[0] or "?" in text:
        expected = "s3://BUCKET/PREFIX without credentials or options in the address"
        fix = "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION in the environment"
        raise UserError(subject, given=_bare(text), expected=expected, fix=fix)
    match = _URI.fullmatch(text.rstrip("/"))
    if match is None or {"", ".", ".."} & set(match["prefix"].split("/")):
        fix = "write the address like s3://my-bucket/sweeps/first"
        raise UserError(subject, given=_bare(text), expected="a directory, or s3://BUCKET/PREFIX", fix=fix)
    from attnsweep.orchestrator.storage.s3 import open_prefix

    return open_prefix(match["bucket"], match["prefix"])


def local_path(text: str) -> Path:
    """Raises UserError for an object store or a file."""
    place = place_of(text, "--dir")
    if not isinstance(place, LocalFolder) or (place.path.exists() and not place.path.is_dir()):
        expected = "a directory on this machine, because figures are written to it"
        raise UserError("--dir", given=text, expected=expected, fix="choose a local directory")
    return place.path


def nearest(place: Place, file: str, otherwise: str) -> str:
    """Names a directory of a similar name beside the given one in which `file` exists, or returns `otherwise`."""
    if not isinstance(place, LocalFolder):
        return otherwise
    beside = [path.parent.name for path in place.path.absolute().parent.glob(f"*/{file}")]
    return did_you_mean(place.path.name, beside, otherwise)


def as_argument(place: object) -> str:
    """Quoted for a shell; a leading `-` becomes `./-`, which does not look like an option."""
    text = str(place)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _reachable(path: Path, subject: str) -> Path:
    """Raises UserError if no directory can exist there: below a file, or behind links that form a circle."""
    try:
        path.stat()
    except FileNotFoundError:
        return path
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and is_fault(error):
            raise store_error(str(path), error, expected="a directory that can be read") from error
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            subject, given=str(path), expected="the path of a directory", fix=f"choose another path ({reason})"
        ) from error
    return path


def _bare(text: str) -> str:
    """A URI without its options after `?`, and without user and password."""
    return re.split(r"[?#]", without_credentials(text))[0]


_SESSION = re.compile(r"session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+")


def new_directory(name: str, given: str | None = None) -> str:
    """The directory given, or `./sweeps/<name>-<time>`. Raises UserError in the folder of a Ray session."""
    directory = f"sweeps/{name}-{time.strftime('%Y%m%d-%H%M%S')}" if given is None else given
    if "://" not in directory:
        refuse_ray_session(Path(directory), "--dir", "give --dir with a full path, or s3://BUCKET/PREFIX")
    return directory


def refuse_ray_session(path: Path, subject: str, fix: str) -> None:
    """`subject` is the option or variable that determines the path, `fix` what the user can give instead."""
    # If a path cannot be resolved, it is checked as it was given. The command that uses the path will refuse it.
    with suppress(OSError, RuntimeError, ValueError):
        path = path.resolve()
    if any(_SESSION.fullmatch(part) for part in path.parts):
        expected = "a directory outside of Ray's session folder, which Ray deletes after the job"
        raise UserError(subject, given=str(path.absolute()), expected=expected, fix=fix)
