"""Quotes names and texts for SQL, whatever characters they contain."""

from attnsweep.workloads.vocabulary import UNJUDGED_OUTCOMES

IS_JUDGED = f"outcome not in {UNJUDGED_OUTCOMES}"
"""The SQL condition for judged trainings. Nobody knows how a failed or pruned training would have ended."""


def identifier(name: str) -> str:
    """Quotes a name, such as a column's, for SQL."""
    return '"' + name.replace('"', '""') + '"'


def param_column(name: str) -> str:
    """Returns the quoted name of a parameter's column."""
    return identifier(f"param_{name}")


def literal(text: str | None) -> str:
    """Quotes a text for SQL; returns NULL for `None`."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
