"""Quotes names and texts for SQL, whatever characters they contain."""

IS_JUDGED = "outcome <> 'failed'"
"""The SQL condition for judged trainings. A failed training says nothing about its configuration."""


def identifier(name: str) -> str:
    """A quoted name, such as a column's."""
    return '"' + name.replace('"', '""') + '"'


def param_column(name: str) -> str:
    """The quoted column of a parameter."""
    return identifier(f"param_{name}")


def literal(text: str | None) -> str:
    """A quoted text, or NULL."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
