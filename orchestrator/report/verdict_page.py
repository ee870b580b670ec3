"""Writes a claim's verdict as an HTML page and an SVG badge; neither loads other files."""

from xml.sax.saxutils import escape

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.verdict import Decision, Verdict, e_value
from attnsweep.orchestrator.report.templating import page_templates
from attnsweep.orchestrator.storage.files import write_text
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

VERDICT_PAGE, BADGE = "report/verdict.html", "report/verdict.svg"
_COLOURS: dict[Decision, str] = {"supported": "#007a5a", "refuted": "#b34700", "undecided": "#595959"}
_CHARACTER_PIXELS, _MARGIN_PIXELS = 7, 14


def write_verdict(directory: SweepDirectory, verdict: Verdict) -> None:
    """Into the folder `report` of the claim's sweep directory."""
    badge = badge_svg(verdict)
    latest = [*directory.environments.values()][-1:]
    page = (
        page_templates()
        .get_template("verdict.html.j2")
        .render(
            verdict=verdict,
            claim=verdict.claim,
            directory=directory,
            badge=badge,
            # The page shows the versions of the libraries with which the claim's latest trainings ran.
            versions=", ".join(f"{name} {number}" for each in latest for name, number in each.versions.items()),
            e_value=e_value,
            value=value_label,
            least=1 / (1 - verdict.claim.confidence),
        )
    )
    write_text(directory.place, VERDICT_PAGE, page)
    write_text(directory.place, BADGE, badge)


def badge_svg(verdict: Verdict) -> str:
    """The claim's name, its verdict, and the number of trainings."""
    name, words = verdict.claim.name, f"{verdict.decision}, {verdict.n_trainings} trainings"
    left, right = (_CHARACTER_PIXELS * len(text) + _MARGIN_PIXELS for text in (name, words))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img"'
        f' font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" fill="#fff" text-anchor="middle">'
        f"<title>{escape(verdict.claim.claim)}: {words}</title>"
        f'<rect width="{left}" height="20" fill="#333"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[verdict.decision]}"/>'
        f'<text x="{left / 2:g}" y="14">{escape(name)}</text><text x="{left + right / 2:g}" y="14">{words}</text></svg>'
    )
