"""Names and values as tables and figures show them, and a check of names that users give."""

import math
from collections.abc import Collection, Sequence

from attnsweep.workloads.errors import UserError, did_you_mean
from attnsweep.workloads.vocabulary import OUTCOMES, ROLES, UNJUDGED_OUTCOMES

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#595959"
_OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def parameter_label(name: str) -> str:
    return name.replace("_", " ")


def speed_label(per_second: float) -> str:
    """A whole number from 10 on, two digits below."""
    return f"{per_second:.0f}" if per_second >= 10 else f"{per_second:.2g}"


def value_label(value: object) -> str:
    """As a user writes it in a sweep: `null`, `true`, `0.001`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
    return str(value)


def outcome_order(outcome: str) -> tuple[bool, int, str]:
    """A sort key: first the outcomes that attnsweep knows, then others by name, then `failed` and `pruned`."""
    known = list(OUTCOMES)
    return (outcome in UNJUDGED_OUTCOMES, known.index(outcome) if outcome in known else len(known), outcome)


def check_known(subject: str, given: str, known: Collection[str], if_none: str, otherwise: str) -> None:
    """Raises UserError for a name that is not known."""
    if given not in known:
        expected = f"one of {', '.join(known)}" if known else if_none
        raise UserError(subject, given=given, expected=expected, fix=did_you_mean(given, known, otherwise=otherwise))


def clipped(text: object, n_characters: int) -> str:
    """One line; an ellipsis marks where it was cut."""
    line = " ".join(str(text).split())
    return line if len(line) <= n_characters else line[: n_characters - 1] + "…"


def power_label(power: int) -> str:
    return "10" + str(power).translate(_SUPERSCRIPTS)


def number_label(value: float) -> str:
    """10⁻⁴ for a power of ten with many zeros; else up to three digits."""
    power = round(math.log10(value)) if value > 0 else 0
    return power_label(power) if abs(power) > 1 and value == float(f"1e{power}") else f"{value:.3g}"


def role_colour(role: str, roles: Sequence[str]) -> str:
    """The same in every figure; roles that a user defines get further colours in turn."""
    if role in ROLES:
        return ROLES[role].colour
    users_roles = [each for each in roles if each not in ROLES]
    return _OTHER_COLOURS[users_roles.index(role) % len(_OTHER_COLOURS)]
