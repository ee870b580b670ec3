"""Mistakes that are refused: the error's type, and the parameter, flag, file or folder that it names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from attnsweep.workloads.errors import UserError

Error = TypeVar("Error", bound=UserError)


@contextmanager
def refused(subject: str, kind: type[Error]) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Of a path, the end is enough."""
    with pytest.raises(kind) as told:
        yield told
    assert told.value.subject == subject or told.value.subject.endswith(f"/{subject}")
