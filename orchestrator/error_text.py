"""What a training raised, as text that every table, file and terminal can hold."""

import traceback
from bdb import BdbQuit

from orchestrator.credentials import without_credentials

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, BdbQuit)
"""What asks a process, or its debugger, to end. Whatever else a training raises is its own fault, also where it is no
`Exception`, as the panics of extension modules written in Rust are not."""

_MOST_CHARACTERS = 20_000


def text_of(error: BaseException) -> str:
    """The traceback: without credentials, in UTF-8, cut in its middle where it is very long.

    An error may carry any text, or raise where it is asked for it.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except STOPS:
        raise
    except BaseException:  # noqa: BLE001  # The error's own code runs here.
        text = f"{type(error).__name__}, whose text cannot be had\n"
    # Shortened last: of a password that was cut nothing would tell that it is one.
    return _shortened(without_credentials(_storable(text)))


def _storable(text: str) -> str:
    # Arrow refuses lone surrogates, PostgreSQL NUL.
    return text.encode(errors="backslashreplace").decode().replace("\0", r"\x00")


def _shortened(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
