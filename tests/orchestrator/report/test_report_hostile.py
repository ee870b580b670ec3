"""Names, errors and values that would break a page, a figure or a shell are shown as they are."""

import json
import shlex
from pathlib import Path

import pytest

from attnsweep.orchestrator.report.page import write_report
from attnsweep.search_spaces import Categorical
from tests.orchestrator.report.report_html import Element, read_html
from tests.orchestrator.small_sweep import edit_record, small_sweep, sweep_on_disk, trial_rows

SCRIPT = "<script>alert('x')</script>"
ATTRIBUTE = '" onmouseover="alert(1)" x=\''
NASTY = f"{SCRIPT}{ATTRIBUTE}]]></svg></style></pre></main>--> &amp; $\\frac{{1}}$ \n\t\x07 漢字 {{{{ 7 * 7 }}}}"
LONG = "z" * 10_000


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Element]:
    """A sweep whose every free text is hostile, and its page."""
    home = tmp_path_factory.mktemp("hostile") / "a <script>b' \"c$(d)\n;e"
    choices = ("positions_only", NASTY, LONG, "$x_{$", "")
    spec = small_sweep("hostile", description=NASTY, replicates=2)
    spec = spec.but(space={**spec.space, "variant": Categorical(choices=choices)})
    trials = [
        trial_rows(
            at,
            ["marginal", "failed"],
            variant=value,
            param_variant=value,
            param_init_sigma=0.05,
            param_learning_rate=5e-3,
            error=f"Traceback\n  {NASTY}\n{SCRIPT * (at + 1)} {LONG}\n",
            outcome_detail=NASTY,
            training_id=NASTY + str(at),
            host=NASTY,
            device=LONG,
        )
        for at, value in enumerate(choices)
    ]
    sweep_on_disk(home, spec, *trials)
    provenance = {"command": NASTY, "host": LONG, NASTY: NASTY, "versions": {NASTY: LONG}}
    changes = {"sweep": NASTY + LONG, "note": NASTY}
    edit_record(home, lambda record: record.update(changes, provenance=record["provenance"] | provenance))
    return home, read_html(write_report([home], None).read_text())


@pytest.mark.scale
@pytest.mark.slow
def test_nothing_becomes_markup(hostile: tuple[Path, Element]) -> None:
    _, page = hostile
    scripts = page.all("script")
    assert [each.attributes.get("type") for each in scripts] == ["application/json", None]
    assert NASTY in json.loads(scripts[0].text)["axes"][-2]["choices"]
    everything = _every(page)
    assert not [name for each in everything for name in each.attributes if name.startswith("on")]
    tags = """html head noscript meta link title style body main header h1 h2 h3 p strong em section div span code
        figure table thead tbody tr th td br a details summary pre dl dt dd footer svg g path rect circle text label
        script select"""
    assert {each.tag for each in everything} <= {*tags.split()}
    assert len(page.all("main")) == 1


@pytest.mark.slow
def test_what_was_said_is_there_to_read(hostile: tuple[Path, Element]) -> None:
    path, page = hostile
    assert SCRIPT in page.one("h1").text
    assert SCRIPT in page.one("p", class_="lead").text
    assert "{{ 7 * 7 }}" in page.one("p", class_="lead").text
    failures = page.all("details", class_="failure")
    assert len(failures) == 5
    assert all(SCRIPT in each.one("pre").text for each in failures)
    assert (
        NASTY.replace("\x07", "\\u0007").splitlines()[0][:60]
        in json.loads(page.one("pre", class_="spec").text)["description"]
    )
    resume = page.all("pre", class_="command")[0].text
    assert shlex.split(resume) == ["attnsweep", "resume", path.name]


def _every(element: Element) -> list[Element]:
    children = [child for child in element.children if isinstance(child, Element)]
    return children + [each for child in children for each in _every(child)]
