"""`attnsweep docs` finds pages by name, heading and word; `attnsweep` alone shows the first steps."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.cli.pages import docs, page_names
from attnsweep.workloads.errors import UserError

PAGES = Path(__file__).parents[3] / "docs"


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["docs", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_page_is_printed_by_its_name() -> None:
    assert printed("tutorial") == printed("Tutorial.md") == (PAGES / "tutorial.md").read_text() + "\n"
    assert printed("histogram").startswith("# Histogram")


def test_every_page_is_listed_with_its_title() -> None:
    lines = printed().splitlines()
    assert [line.split()[0] for line in lines[: len(page_names())]] == page_names()
    assert any(line.split(maxsplit=1) == ["zeros", "Zeros, valleys and plateaus"] for line in lines)


def test_a_heading_prints_its_section_alone() -> None:
    section = printed("keep weights")
    assert section.startswith("*sweeps*\n\n### Keep weights") or section.startswith("*sweeps*\n\n## Keep weights")
    assert section.count("\n## ") <= 1


def test_a_comment_in_a_block_of_code_is_no_heading() -> None:
    assert "three_curves.py" in (PAGES / "tutorial.md").read_text()
    assert printed("three_curves.py").startswith("tutorial: ")


def test_a_word_prints_the_lines_that_contain_it() -> None:
    lines = printed("param_certified_share").splitlines()
    assert lines
    assert all("param_certified_share" in line for line in lines)


def test_an_unknown_topic_gets_the_nearest_page() -> None:
    with pytest.raises(UserError, match="did you mean tutorial"):
        docs("tutorail")


def test_without_arguments_the_first_steps_are_shown_and_the_help_has_all() -> None:
    first = CliRunner().invoke(app, [])
    assert first.exit_code == 0
    assert "attnsweep run quickstart" in first.output
    assert len(first.output.splitlines()) < 12
    named = [line.split()[1] for line in first.output.splitlines() if line.startswith("  attnsweep ")]
    everything = CliRunner().invoke(app, ["--help"]).output
    assert all(f" {name} " in everything for name in named)
