"""Reproductions are found by entry point, and a package with a broken entry does not affect others."""

import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnsweep.orchestrator.cli.literature import Reproduction, load_reproductions
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

MINE = [named("mine")]
TAKEN = [named("shin-fig1"), named("another")]
ONE = named("one")
OTHERS = ["mine"]
UNTITLED = [attnsweep.Reproduction(name="x", title=None, source="", cost="", function="")]
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
    found, errors = load_reproductions()
    assert tuple(found.values()) == REPRODUCTIONS
    assert errors == []
    for each in REPRODUCTIONS:
        assert isinstance(each, Reproduction)
        assert bool(each.function) or bool(each.sweep and each.rows)
        assert not each.function or callable(pkgutil.resolve_name(each.function))


@pytest.mark.scale
@pytest.mark.slow
def test_a_reproduction_prints_its_rows(tmp_path: Path, command: Command) -> None:
    code, out, _ = command("reproduce", "shin-handmade", "--dir", str(tmp_path), "--json")
    assert code == 0
    printed = json.loads(out.splitlines()[-1])
    assert printed == json.loads((tmp_path / "shin-handmade.json").read_text())
    assert {row["agrees"] for row in printed["rows"]} >= {True, False}
    assert all(Path(figure).exists() for figure in printed["figures"])


def test_a_package_adds_its_own(site: Path, command: Command) -> None:
    _install(site, a="figures_of_a_user:MINE")
    code, out, _ = command("reproduce", "mine", "--dir", str(site / "out"), "--json")
    printed = json.loads(out)
    assert code == 0
    assert printed["rows"] == [
        {"name": "share", "published": 0.5, "ours": 0.25, "low": None, "high": None, "agrees": False}
    ]
    assert json.loads((site / "out" / "mine.json").read_text()) == printed


@pytest.mark.parametrize(
    ("target", "given"),
    [
        (
            "no_such_package:MINE",
            "\"a module whose import raises ModuleNotFoundError: No module named 'no_such_package'\"",
        ),
        (
            "figures_of_a_user:NONE",
            "\"a module whose import raises AttributeError: module 'figures_of_a_user' has no attribute 'NONE'\"",
        ),
        ("figures_of_a_user:ONE", "'Reproduction'"),
        (
            "figures_of_a_user:OTHERS",
            "\"a sequence with 'mine', which is no Reproduction whose name, title, source and cost are strings\"",
        ),
        ("figures_of_a_user:UNTITLED", '"a sequence with Reproduction(name='),
    ],
)
def test_a_broken_entry_is_one_line_and_hides_no_other(target: str, given: str, site: Path, command: Command) -> None:
    _install(site, broken=target, works="figures_of_a_user:MINE")
    code, out, error = command("reproduce")
    assert (code, error.count("\n")) == (0, 1)
    assert [line.split()[0] for line in out.splitlines()] == [*(each.name for each in REPRODUCTIONS), "mine"]
    assert error.startswith(f"attnsweep: entry point broken = {target}: got ")


def test_a_package_cannot_replace_what_is_shipped(site: Path) -> None:
    _install(site, a="figures_of_a_user:TAKEN")
    found, [error] = load_reproductions()
    assert found["shin-fig1"] is REPRODUCTIONS[0]
    assert "another" in found
    assert (error.subject, error.given) == ("entry point a = figures_of_a_user:TAKEN", "shin-fig1")
