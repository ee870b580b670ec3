"""Writes and reads the JSON records of a sweep directory, such as `sweep.json`.

A record holds the `sha256` of its content, and there is one way to write a content, so any changed byte is detected.
Records of earlier versions have no `sha256`: of them only the form is checked.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from attnsweep.orchestrator.storage.place import Place
from attnsweep.search_spaces.sweep import sha256_of
from attnsweep.workloads.errors import UserError

_CHECKSUM = "sha256"
_LONGEST_REASON = 200

Record = TypeVar("Record", bound=BaseModel)


class DamagedRecordError(UserError):
    """A record is not what was written."""


def record_text(record: BaseModel) -> str:
    """The text of a record's file."""
    content = record.model_dump(mode="json")
    return _written(content | {_CHECKSUM: sha256_of(content)})


def _written(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def read_record(place: Place, name: str, kind: type[Record], fix: str) -> Record:
    """Reads a record.

    Args:
        place: The sweep directory.
        name: The record's file.
        kind: Its model.
        fix: What a user does about a damaged one.

    Raises:
        FileNotFoundError, NotADirectoryError: If there is none.
        DamagedRecordError: If the record is not what was written.
        StoreError: If it cannot be read now.
    """
    try:
        return parse_record(place.read_text(name), kind)
    except (FileNotFoundError, NotADirectoryError, UserError):
        raise
    except (OSError, ValueError) as damage:
        raise DamagedRecordError(
            f"{place}/{name}",
            given=reason_of(damage),
            expected="the file as attnsweep wrote it",
            fix=fix,
        ) from damage


def parse_record(text: str, kind: type[Record]) -> Record:
    """The inverse of `record_text`.

    Raises:
        ValueError: If `record_text` did not write the text.
    """
    try:
        content = json.loads(text)
        if isinstance(content, dict) and _CHECKSUM in content:
            # Another spelling of the same content, such as 1E-9 for 1e-9, is a changed byte too.
            is_as_written = text == _written(content)
            if content.pop(_CHECKSUM) != sha256_of(content):
                raise ValueError("contents that do not match their sha256")
            if not is_as_written:
                raise ValueError("other bytes than were written, with the same contents")
        return kind.model_validate_json(json.dumps(content))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    except UserError as mistake:
        raise ValueError(f"{mistake.subject}: {mistake.given!r}") from mistake


def reason_of(damage: Exception) -> str:
    """Why a record cannot be read, in one line."""
    if isinstance(damage, ValidationError):
        first = damage.errors(include_url=False)[0]
        return ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
    words = getattr(damage, "strerror", None) or str(damage)
    return " ".join(words.split())[:_LONGEST_REASON]
