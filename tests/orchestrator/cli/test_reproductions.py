"""Reproductions are found by entry point, and a package with a broken entry does not affect others."""

import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnsweep.orchestrator.cli.literature import reproductions
from attnsweep.reproduction.catalog import REPRODUCTIONS
from tests.orchestrator.conftest import Command

MODULE = """
import attnsweep

def reproduce(directory, console):
    row = attnsweep.ComparedValue(name="share", published=0.5, ours=0.25, agrees=False)
    return attnsweep.Comparison(title="a figure", source="Author 2020", rows=[row])

def named(name):
    return attnsweep.Reproduction(
        name=name, title="a figure", source="Author 2020", cost="1 s", function="figures_of_a_user:reproduce"
    )

MINE = [named("mine"), named("shin-fig1"), named("another")]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that packages are imported from, with one module in it."""
    (tmp_path / "figures_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("figures_of_a_user", None)


def _install(site: Path, **entries: str) -> None:
    """Makes the module's package offer these entries."""
    folder = site / "figures_of_a_user-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: figures-of-a-user\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (folder / "entry_points.txt").write_text("\n".join(["[attnsweep.reproductions]", *lines]) + "\n")


def test_the_shipped_ones_are_found_and_are_there() -> None:
    assert [*reproductions()] == [each.name for each in REPRODUCTIONS]
    for each in REPRODUCTIONS:
        assert bool(each.function) or bool(each.sweep and each.rows)
        assert not each.function or callable(pkgutil.resolve_name(each.function))


def test_a_package_adds_its_own_and_replaces_none_and_a_broken_one_hides_none(site: Path, command: Command) -> None:
    _install(site, broken="no_such_package:MINE", works="figures_of_a_user:MINE")
    code, out, error = command("reproduce", "mine", "--dir", str(site / "out"), "--json")
    assert (code, "no_such_package:MINE" in error) == (0, True)
    printed = json.loads(out)
    assert (printed["rows"][0]["name"], printed["rows"][0]["ours"]) == ("share", 0.25)
    assert json.loads((site / "out" / "mine.json").read_text()) == printed
    found = reproductions()
    assert found["shin-fig1"].title == REPRODUCTIONS[0].title
    assert {"mine", "another"} <= found.keys()
