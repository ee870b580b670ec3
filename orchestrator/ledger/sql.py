"""Quotes names and texts for SQL, whatever characters they contain."""

from attnsweep.workloads.vocabulary import UNJUDGED_OUTCOMES

IS_JUDGED = f"outcome not in {UNJUDGED_OUTCOMES}"
"""The SQL condition for judged trainings: of a failed or pruned training nobody knows how it would have ended."""


def identifier(name: str) -> str:
    """A quoted name, such as a column's."""
    return '"' + name.replace('"', '""') + '"'


def param_column(name: str) -> str:
    """The quoted column of a parameter."""
    return identifier(f"param_{name}")


def literal(text: str | None) -> str:
    """A quoted text, or NULL."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
