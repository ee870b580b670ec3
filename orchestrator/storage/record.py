"""The JSON records of a sweep directory: each kind has a strict model, and its file the `sha256` of its content."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from attnsweep.orchestrator.storage.files import is_damage, read_text, write_text
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.search_spaces.sweep import sha256_of
from attnsweep.workloads.errors import UserError

_CHECKSUM = "sha256"


class Record(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def unless_empty(default: object, **limits: Any) -> Any:
    """A record's field that is left out of the file while its value is empty."""
    return Field(default=default, exclude_if=lambda value: not value, **limits)


R = TypeVar("R", bound=Record)


class DamagedRecordError(UserError):
    """A record's file is not as it was written."""


@dataclass(frozen=True)
class RecordFile(Generic[R]):
    """`fix`: what the user can do about a damaged file; `{}` is replaced by the sweep directory."""

    name: str
    model: type[R]
    fix: str

    def read(self, place: Path) -> R:
        """Raises DamagedRecordError, or OSError if it isn't there or can't be read now."""
        try:
            return self.parse(read_text(place / self.name))
        except (OSError, ValueError) as damage:
            if isinstance(damage, FileNotFoundError) or not is_damage(damage):
                raise
            expected = "a file that has not changed since attnsweep wrote it"
            fix = self.fix.replace("{}", as_argument(place))
            subject = f"{place}/{self.name}"
            raise DamagedRecordError(subject, given=reason_of(damage), expected=expected, fix=fix) from damage

    def read_if_sound(self, place: Path) -> R | None:
        """`None` if it is missing, damaged or cannot be read."""
        with suppress(OSError, UserError, ValueError):
            return self.parse(read_text(place / self.name))
        return None

    def write(self, place: Path, record: R, *, durable: bool = True) -> None:
        write_text(place, self.name, self.text(record), durable=durable)

    def text(self, record: R) -> str:
        content = record.model_dump(mode="json", by_alias=True)
        return json.dumps(content | {_CHECKSUM: sha256_of(content)}, indent=2) + "\n"

    def parse(self, text: str) -> R:
        """Raises ValueError if the text is not one that `text` writes."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict) or content.pop(_CHECKSUM, None) != sha256_of(content):
                raise ValueError("the contents do not match the stored sha256")
            return self.model.model_validate_json(json.dumps(content))
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        except UserError as mistake:
            raise ValueError(f"the field {mistake.subject} has the wrong value {mistake.given!r}") from mistake


def reason_of(damage: Exception) -> str:
    if isinstance(damage, ValidationError):
        first = damage.errors(include_url=False)[0]
        return ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
    words = getattr(damage, "strerror", None) or str(damage)
    return " ".join(words.split())[:200]
