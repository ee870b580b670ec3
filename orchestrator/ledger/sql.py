"""Names and texts in SQL, whatever they hold."""

IS_JUDGED = "outcome <> 'failed'"
"""The SQL condition that keeps the judged trainings: a failed one says nothing about its configuration."""


def identifier(name: str) -> str:
    """A name, such as a column's."""
    return '"' + name.replace('"', '""') + '"'


def param_column(name: str) -> str:
    """The column of a parameter."""
    return identifier(f"param_{name}")


def literal(text: str | None) -> str:
    """A text, or null."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
