"""What the user got wrong, said so that the user can mend it."""


class UserError(Exception):
    """A mistake of the user's: what was given, what is accepted, how to mend it. The CLI exits with code 2.

    Args:
        subject: The parameter, flag, file or directory at fault.
        given: What came.
        expected: What is accepted.
        mend: What to do about it.
    """

    def __init__(self, subject: str, *, given: object, expected: str, mend: str) -> None:
        super().__init__(subject, given, expected, mend)
        self.subject = subject
        self.given = given
        self.expected = expected
        self.mend = mend

    # Rebuilt from keywords: the default would pass positional arguments to a keyword-only constructor.
    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.subject, self.given, self.expected, self.mend)

    def __str__(self) -> str:
        return f"{self.subject}: got {self.given!r}, expected {self.expected}; {self.mend}"


class SpecError(UserError):
    """A sweep, search space or parameter that cannot be trained as written."""


def _rebuild(kind: type[UserError], subject: str, given: object, expected: str, mend: str) -> UserError:
    return kind(subject, given=given, expected=expected, mend=mend)
