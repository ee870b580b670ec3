"""Loads the templates of pages: every text is escaped, and this machine's folders are removed."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from attnsweep.orchestrator.report.portable import without_folders


def page_templates() -> Environment:
    """Creates the Jinja environment of all page templates. In these, an undefined name raises an error."""
    return Environment(
        loader=PackageLoader("attnsweep.orchestrator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_portable,
    )


def _portable(value: object) -> object:
    """Removes the names of folders from plain texts. `Markup`, such as our own drawings, stays unchanged."""
    return without_folders(value) if type(value) is str else value
