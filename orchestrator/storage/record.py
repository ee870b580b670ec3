"""The JSON records of a sweep directory, such as `sweep.json`: one strict model each, read and written in one way.

A file holds the `sha256` of its record, and there is one way to write a record, so any changed byte is detected. Files
of earlier versions have no `sha256`: of them only the form is checked. A field that a later version has added has a
default, and is left out of the file where it has that default; so earlier files are read, and read alike.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.search_spaces.sweep import sha256_of
from attnsweep.workloads.errors import UserError

_CHECKSUM = "sha256"
_LONGEST_REASON = 200


class Record(BaseModel):
    """What a file holds: exactly these fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


R = TypeVar("R", bound=Record)


class DamagedRecordError(UserError):
    """A record is not what was written."""


@dataclass(frozen=True)
class RecordFile(Generic[R]):
    """The file of a record.

    Attributes:
        name: The file in the sweep directory.
        model: What it holds.
        fix: What a user does about a damaged one; `{}` is the sweep directory.
    """

    name: str
    model: type[R]
    fix: str

    def read(self, place: Place) -> R:
        """Reads the record.

        Raises:
            FileNotFoundError, NotADirectoryError: If there is none.
            DamagedRecordError: If it is not what was written.
            StoreError: If it cannot be read now.
        """
        try:
            return self.parse(place.read_text(self.name))
        except (FileNotFoundError, NotADirectoryError, UserError):
            raise
        except (OSError, ValueError) as damage:
            raise DamagedRecordError(
                f"{place}/{self.name}",
                given=reason_of(damage),
                expected="the file as attnsweep wrote it",
                fix=self.fix.replace("{}", as_argument(place)),
            ) from damage

    def read_if_sound(self, place: Place) -> R | None:
        """Reads a record that nothing depends on; `None` if there is none, or it cannot be read."""
        with suppress(OSError, UserError, ValueError):
            return self.parse(place.read_text(self.name))
        return None

    def write(self, place: Place, record: R) -> None:
        """Replaces the record. Durable once this returns."""
        place.put_text(self.name, self.text(record))

    def write_passing(self, place: Place, record: R) -> None:
        """Replaces a record that nothing depends on; a failure is no error."""
        with suppress(StoreError):
            place.put_passing_text(self.name, self.text(record))

    def text(self, record: R) -> str:
        """The text of the file."""
        content = record.model_dump(mode="json")
        return _written(content | {_CHECKSUM: sha256_of(content)})

    def parse(self, text: str) -> R:
        """The inverse of `text`.

        Raises:
            ValueError: If `text` did not make it.
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
            return self.model.model_validate_json(json.dumps(content))
        except RecursionError as error:
            raise ValueError("JSON that is nested too deeply") from error
        except UserError as mistake:
            raise ValueError(f"{mistake.subject}: {mistake.given!r}") from mistake


def _written(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def reason_of(damage: Exception) -> str:
    """Why a record cannot be read, in one line."""
    if isinstance(damage, ValidationError):
        first = damage.errors(include_url=False)[0]
        return ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
    words = getattr(damage, "strerror", None) or str(damage)
    return " ".join(words.split())[:_LONGEST_REASON]
