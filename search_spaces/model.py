"""The base class of all parts of a spec: immutable and strictly validated, with errors of one line."""

import re
from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from attnsweep.workloads.declaration import plain
from attnsweep.workloads.errors import SpecError, did_you_mean

_QUOTED = re.compile("'([^']*)'")


class SpecModel(BaseModel):
    """An unknown field, a wrong type or NaN raises a `SpecError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _say_what_is_wrong(cls, fields: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(plain(fields))
        except ValidationError as error:
            raise first_mistake(error, cls.model_fields) from None


def first_mistake(error: ValidationError, fields: Iterable[str] = ()) -> SpecError:
    """As a `SpecError`; for a misspelled name it suggests the nearest of `fields`."""
    mistakes = error.errors(include_url=False)
    # Of a misspelled required field Pydantic reports an unknown field and a missing one; the former tells more.
    first = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    # Where a field may have several types, Pydantic adds a tag for its choice to the location; ours are blank.
    place = ".".join(text for part in first["loc"] if (text := str(part).strip())) or "spec"
    hints = {
        "extra_forbidden": (
            "no such field",
            did_you_mean(place.rpartition(".")[2], fields, otherwise="remove it, or correct its name"),
        ),
        "missing": ("a value", f"give {place}"),
        "too_short": ("at least one value", "give one, or leave it out"),
        "model_type": (f"fields with values: {', '.join(fields)}", "correct the value"),
        "union_tag_not_found": ("a value, or a mapping with the field `kind`", "add the field `kind`"),
        "union_tag_invalid": (
            f"a value, or one of the kinds {first.get('ctx', {}).get('expected_tags')}",
            "correct the value",
        ),
    }
    choices = _QUOTED.findall(first.get("ctx", {}).get("expected", "")) if first["type"] == "literal_error" else ()
    advice = did_you_mean(first["input"], choices, otherwise="correct the value")
    expected, fix = hints.get(first["type"], (_without_preamble(first["msg"]), advice))
    given = "nothing" if first["type"] == "missing" else first["input"]
    return SpecError(place, given=given, expected=expected, fix=fix)


def _without_preamble(message: str) -> str:
    for preamble in ("Input should be ", "Value error, ", "Invalid JSON: "):
        message = message.removeprefix(preamble)
    return message[:1].lower() + message[1:]
