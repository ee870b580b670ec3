"""Arguments of the command line that no file, record or query can hold."""

from collections.abc import Sequence

from attnsweep.workloads.errors import UserError


def check_texts(arguments: Sequence[str]) -> None:
    """Refuses arguments that are no UTF-8 text without NUL.

    Raises:
        UserError: If there is one.
    """
    for argument in arguments:
        if "\0" in argument or (not argument.isascii() and any("\ud800" <= sign <= "\udfff" for sign in argument)):
            raise UserError(
                "argument", given=argument, expected="UTF-8 text without NUL", fix="correct it, or rename the file"
            )
