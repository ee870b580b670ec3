"""Errors that a user can correct, in one line: what was given, what is accepted, and the fix."""

import difflib
from collections.abc import Iterable

_SHOWN_CHARACTERS = 200
"""A message cuts what was given to this length."""


class UserError(Exception):
    """A user's mistake. The command line prints it as one line and exits with code 2."""

    def __init__(self, subject: str, *, given: object, expected: str, fix: str = "") -> None:
        super().__init__(subject, given, expected, fix)
        self.subject = subject
        self.given = given
        self.expected = expected
        self.fix = fix

    # Unpickled, an error gets its arguments by position, which the constructor does not accept.
    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.subject, self.given, self.expected, self.fix)

    def __str__(self) -> str:
        given = repr(_cut(self.given)) if isinstance(self.given, str) else _cut(_repr(self.given))
        message = f"{_cut(self.subject)}: got {given}, expected {self.expected}{self.fix and f'; {self.fix}'}"
        return message.replace("\n", " ")


class SpecError(UserError):
    """A sweep, search space, parameter or workload from which no training can be made."""


def did_you_mean(given: object, names: Iterable[str], otherwise: str) -> str:
    """Advice for an unknown name: the most similar of `names`, or `otherwise`."""
    if not isinstance(given, str):
        return otherwise
    known = {name.lower(): name for name in names}
    close = difflib.get_close_matches(given.lower()[:_SHOWN_CHARACTERS], known, n=1)
    return f"did you mean {known[close[0]]}?" if close else otherwise


def in_words(error: BaseException) -> str:
    """An error from outside attnsweep's code as one line, such as `ValueError: no such word`."""
    try:
        message = _cut(" ".join(str(error).split()))
    except Exception:  # noqa: BLE001  # The `__str__` of a foreign error may itself raise.
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # A foreign `__repr__` may raise, as does an int of more than 4,300 digits.
        return f"<{type(value).__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _rebuild(kind: type[UserError], subject: str, given: object, expected: str, fix: str) -> UserError:
    return kind(subject, given=given, expected=expected, fix=fix)
