"""The base class of all parts of a spec, such as sweeps. Specs are immutable and strictly validated, and a mistake
gives an error of one line."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from attnsweep.workloads.declaration import plain
from attnsweep.workloads.errors import SpecError, did_you_mean

_QUOTED = re.compile("'([^']*)'")


class SpecModel(BaseModel):
    """Base class of all parts of a spec, such as sweeps. An unknown field, a wrong type or NaN raises a `SpecError`."""

    # This `__init__` is hidden from type checkers, so that they derive each subclass's signature from its fields.
    if not TYPE_CHECKING:

        def __init__(self, *values: Any, **fields: Any) -> None:
            if values:
                fields_of = type(self).model_fields
                names = [name for name, field in fields_of.items() if field.is_required()] or [*fields_of][1:]
                arguments = ", ".join(f"{name}=..." for name in names)
                given = f"{len(values)} value{'' if len(values) == 1 else 's'} by position"
                expected = "a keyword argument for every field"
                fix = f"write {type(self).__name__}({arguments})"
                raise SpecError(type(self).__name__, given=given, expected=expected, fix=fix)
            super().__init__(**fields)

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
    # If a required field is misspelled, Pydantic reports two mistakes: an unknown field and a missing field. The
    # unknown field is shown, because it tells the user more.
    first = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    # Where a field may have several types, Pydantic adds to the location of a mistake a tag for the type that it chose,
    # which users do not know. Our tags are blank strings, so blank parts of the location are left out.
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
