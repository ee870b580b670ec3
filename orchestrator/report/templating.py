"""How the pages' templates are read: every text is escaped, and none shows a folder of this machine."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from attnsweep.orchestrator.report.portable import without_folders


def page_templates() -> Environment:
    """The templates of all pages; a name that a template lacks is an error."""
    return Environment(
        loader=PackageLoader("attnsweep.orchestrator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_portable,
    )


def _portable(value: object) -> object:
    """A value as a page shows it. Our own drawings are unchanged."""
    return without_folders(value) if type(value) is str else value
