"""What the documents name exists: commands, options, pages, files, definitions."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_group

from attnsweep.orchestrator.cli import app
from attnsweep.workloads.registry import load_workload, registered_names
from tests.across.documents import DOCUMENTS, ROOT, invocations

COMMANDS = get_group(app).commands


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_commands_and_options_of_a_document_exist(name: str) -> None:
    for line in invocations(DOCUMENTS[name]):
        command, *words = line.split()
        assert command in COMMANDS, f"attnsweep {line}"
        known = {option for parameter in COMMANDS[command].params for option in parameter.opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known, f"attnsweep {line}"
    every = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
    spoken = set(re.findall(r"`(--[a-z-]+)", DOCUMENTS[name]))
    assert spoken <= every


def test_every_command_is_in_a_document() -> None:
    assert {line.split()[0] for text in DOCUMENTS.values() for line in invocations(text)} == set(COMMANDS)


def anchors(text: str) -> set[str]:
    """The anchors of a page: its headings in lower case, without punctuation, with dashes for spaces."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_links_of_a_document_lead_somewhere(name: str) -> None:
    at = ROOT / "README.md" if name == "README.md" else ROOT / "docs" / name
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", DOCUMENTS[name]):
        page = at.parent / target if target else at
        assert page.exists() or page.parent.name == "reference", target  # the site's build writes some of these
        assert not anchor or page.parent.name == "reference" or anchor in anchors(page.read_text()), (
            f"{target}#{anchor}"
        )


@pytest.mark.scale
@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    # In a copy, because the build writes references beside the pages.
    for name in ("docs", "infra"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("_build"))
    for name in ("CHANGELOG.md", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    site = tmp_path / "site"
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *options, str(tmp_path / "docs"), str(site)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    assert "attnsweep.open_sweep" in (site / "reference" / "api.html").read_text()
    words = set(re.findall(r"\w+", (site / "reference" / "shipped.html").read_text()))
    parameters = {each for name in registered_names() for each in load_workload(name).parameters.declared()}
    assert parameters - words == set(), "the site's search does not find these parameters"
    assert "mlflow-sync" in (site / "reference" / "command_line.html").read_text()
