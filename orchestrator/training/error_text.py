"""Converts an exception to a text that every table, file and terminal can hold."""

import traceback
from bdb import BdbQuit

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.workloads.errors import UserError

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, BdbQuit)
"""Exceptions that end a process or its debugger. Anything else that a training raises is recorded as its failure, even
if it is no `Exception`, such as a panic of an extension module in Rust."""

_MOST_CHARACTERS = 20_000


def text_of(error: BaseException) -> str:
    """Formats the traceback of an error: without credentials, in UTF-8, and shortened in the middle if it is very long.

    For a UserError it is only the error's own line, which says what to do. An exception may carry any text, and its
    `__str__` may itself raise.
    """
    try:
        is_mistake = isinstance(error, UserError)
        text = "".join((traceback.format_exception_only if is_mistake else traceback.format_exception)(error))
    except STOPS:
        raise
    except BaseException:  # noqa: BLE001  # The error's own code runs here and may raise anything.
        text = f"{type(error).__name__}, whose text cannot be read\n"
    # The text is shortened after passwords are removed, because half a password would not be recognized as a password.
    return _shortened(without_credentials(_storable(text)))


def _storable(text: str) -> str:
    # The text is made storable: Arrow does not accept lone surrogates, and PostgreSQL does not accept NUL characters.
    return text.encode(errors="backslashreplace").decode().replace("\0", r"\x00")


def _shortened(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
