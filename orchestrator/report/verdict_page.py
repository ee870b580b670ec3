"""Writes a claim's verdict as an HTML page that loads no other file."""

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.verdict import Verdict, e_value
from attnsweep.orchestrator.report.templating import page_templates
from attnsweep.orchestrator.storage.files import write_text
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

VERDICT_PAGE = "report/verdict.html"


def write_verdict(directory: SweepDirectory, verdict: Verdict) -> None:
    """Into the folder `report` of the claim's sweep directory."""
    latest = [*directory.environments.values()][-1:]
    page = (
        page_templates()
        .get_template("verdict.html.j2")
        .render(
            verdict=verdict,
            claim=verdict.claim,
            directory=directory,
            versions=", ".join(f"{name} {number}" for each in latest for name, number in each.versions.items()),
            e_value=e_value,
            value=value_label,
            least=1 / (1 - verdict.claim.confidence),
        )
    )
    write_text(directory.place, VERDICT_PAGE, page)
