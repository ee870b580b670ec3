"""Finding workloads: each mistake in a reference gets its own one-line message."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.parameters import parameter
from attnsweep.workloads.registry import check_declarations, load_workload, registered_names
from attnsweep.workloads.vocabulary import Outcome

WORKLOAD = """
from attnsweep.workloads.category_pairs import CategoryPairs


class Mine(CategoryPairs):
    name = "mine"


an_instance = Mine()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_workload_is_found_by_name_module_and_file(place: Path) -> None:
    (place / "found_workloads.py").write_text(WORKLOAD)
    assert type(load_workload("category_pairs")) is CategoryPairs
    assert load_workload("found_workloads:Mine").name == "mine"
    assert load_workload(f"{place}/found_workloads.py:Mine").name == "mine"


@pytest.mark.parametrize("reference", ["category_pears", ":Mine", ".mine:Mine", "my file:Mine"])
def test_an_unknown_name(reference: str) -> None:
    names = ", ".join(registered_names())
    with pytest.raises(
        SpecError, match=rf"^workload: got '.*', expected module:Class, file.py:Class, or the name of .*{names}"
    ):
        load_workload(reference)


@pytest.mark.parametrize(
    "module", ["no_such_module_here", "attnsweep.workloads.no_such_module", "attnsweep.workloads.errors.deeper"]
)
def test_a_module_that_is_not_there(module: str) -> None:
    with pytest.raises(
        SpecError, match=rf"got '{module}:Mine', expected .*installed.*; install .* write file\.py:Mine"
    ):
        load_workload(f"{module}:Mine")


@pytest.mark.parametrize(
    ("content", "raised"),
    [
        ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("from attnsweep.workloads.errors import Nothing", "ImportError: cannot import name 'Nothing'"),
        ("{}.x", "AttributeError: 'dict' object has no attribute 'x'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_raises_is_named_with_what_it_raised(place: Path, content: str, raised: str) -> None:
    module = f"raises_{raised.partition(':')[0]}"
    (place / f"{module}.py").write_text(content)
    with pytest.raises(SpecError) as caught:
        load_workload(f"{module}:Mine")
    assert raised in str(caught.value.given)
    assert f"{module}:Mine" in str(caught.value.given)
    assert caught.value.fix == f"correct the module; to see where it fails: python -c 'import {module}'"


def test_a_users_error_is_passed_on_as_it_is(place: Path) -> None:
    (place / "users_error.py").write_text(
        "from attnsweep.workloads.errors import SpecError\nraise SpecError('a', given=1, expected='2', fix='3')"
    )
    with pytest.raises(SpecError, match=r"^a: got 1, expected 2; 3$"):
        load_workload("users_error:Mine")


@pytest.mark.parametrize("form", ["{module}:Nine", "{place}/lacking.py:Nine"])
def test_a_class_that_is_not_there(place: Path, form: str) -> None:
    (place / "lacking.py").write_text(WORKLOAD)
    reference = form.format(module="lacking", place=place)
    with pytest.raises(SpecError) as caught:
        load_workload(reference)
    assert caught.value.given == reference
    assert caught.value.expected == "the name of a workload that the module defines: CategoryPairs, Mine"
    assert "Nine" in caught.value.fix


def test_what_is_no_workload(place: Path) -> None:
    (place / "kinds.py").write_text(WORKLOAD)
    for name in ("an_instance", "__name__"):
        with pytest.raises(SpecError, match=r"expected a subclass of attnsweep\.Workload; give the name of the class"):
            load_workload(f"kinds:{name}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a Python file; check the path"):
        load_workload(f"{tmp_path}/none.py:Mine")


FINE = Outcome("knows its pairs only")


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"outcomes": ("memorized",)}, r"Mine\.outcomes: got .*, expected a dictionary such as"),
        ({"outcomes": {"memorized": "a text"}}, r"Mine\.outcomes: got .*, expected a dictionary such as"),
        (
            {"outcomes": {"solved": FINE}},
            "got 'solved', expected a label of lower-case letters, digits and _ that differs from the built-in labels",
        ),
        ({"outcomes": {"stuck": FINE}}, "got 'stuck', expected a label of lower-case letters"),
        ({"outcomes": {"Two words": FINE}}, "got 'Two words', expected a label of lower-case letters"),
        ({"outcomes": {"memorized": Outcome(" ")}}, "memorized: got ' ', expected a sentence"),
        ({"outcomes": {"memorized": Outcome("fine", "red")}}, "memorized: got 'red', expected a colour such as \"#"),
        (
            {"outcomes": {"memorized": Outcome("fine", is_judged=False)}},
            "expected is_judged=True, because the workload's own",
        ),
        ({"events": {"fits": "fits"}}, "got 'fits', expected comparisons of a metric with a number"),
        ({"files": "table.pt"}, r"Mine\.files: got 'table\.pt', expected a tuple"),
        ({"events": {"fits": 1}}, r"Mine\.events: got .*, expected a dictionary such as"),
        (
            {"events": {"Fits it": lambda *_: None}},
            "got 'Fits it', expected the name of an event in lower-case letters",
        ),
    ],
)
def test_outcomes_and_events_that_cannot_be_declared(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        check_declarations(type("Mine", (CategoryPairs,), declared))


@dataclass(frozen=True, kw_only=True)
class TwoCases(CategoryPairsParameters):
    N_steps: int = parameter(8, "width")


@dataclass(frozen=True, kw_only=True)
class TakenName(CategoryPairsParameters):
    static_key: int = parameter(8, "width")  # type: ignore[assignment]


@pytest.mark.parametrize("declared", [{"parameters": TakenName}, {"level_names": ("zero", "solved")}])
def test_names_that_attnsweep_uses_itself_are_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        check_declarations(type("Mine", (CategoryPairs,), declared))


@pytest.mark.parametrize(
    "declared",
    [
        {"parameters": TwoCases},
        {"level_names": ("zero", "Zero")},
        {"level_names": ("Solved",)},
        {"head_score_names": ("a", "A")},
    ],
)
def test_names_that_differ_only_in_case_are_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="differ not only in case"):
        check_declarations(type("Mine", (CategoryPairs,), declared))
