"""The local copies of sweeps in object stores: a folder in the user's state, with the same names as in the store."""

import os
import re
from pathlib import Path

LOCK_FILE = ".lock"
"""Names who works on the sweep: a file in its place, and an object in the store."""
CHECKPOINTS = "checkpoints"
"""Only drivers read this folder."""


def copy_of(bucket: str, prefix: str) -> Path:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "aws"
    return _copies() / re.sub(r"\W+", "-", endpoint) / bucket / prefix


def is_copy(path: Path) -> bool:
    """Whether it is, or lies in, the copy of a sweep in an object store."""
    return path.absolute().is_relative_to(_copies())


def bucket_and_key(copy: Path) -> tuple[str, str]:
    _, bucket, *key = copy.absolute().relative_to(_copies()).parts
    return bucket, "/".join(key)


def name_of(path: object) -> str:
    """As the user knows it: `s3://BUCKET/PREFIX` for a copy."""
    return "s3://{}/{}".format(*bucket_and_key(path)) if isinstance(path, Path) and is_copy(path) else str(path)


def full_name(place: Path) -> str:
    """As `name_of`, but absolute: for a reader on another machine or in another folder."""
    return name_of(place if is_copy(place) else place.resolve())


def _copies() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or f"{os.environ.get('HOME', '/nonexistent')}/.local/state"
    return Path(state, "attnsweep", "s3").absolute()
