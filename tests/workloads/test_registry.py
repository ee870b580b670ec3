"""Finding workloads: each mistake in a reference gets its own one-line message."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import parameter
from attnsweep.workloads.registry import check_declarations, load_workload
from attnsweep.workloads.vocabulary import Outcome
from tests.refusals import refused

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


@pytest.mark.parametrize(
    "reference",
    [
        *("category_pears", ":Mine", ".mine:Mine", "my file:Mine"),
        *(
            "no_such_module_here:Mine",
            "attnsweep.workloads.no_such_module:Mine",
            "attnsweep.workloads.errors.deeper:Mine",
        ),
    ],
)
def test_a_workload_that_is_not_there(reference: str) -> None:
    with refused("workload", SpecError):
        load_workload(reference)


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
    assert module in caught.value.fix


@pytest.mark.parametrize("form", ["{module}:Nine", "{place}/lacking.py:Nine"])
def test_a_class_that_is_not_there(place: Path, form: str) -> None:
    (place / "lacking.py").write_text(WORKLOAD)
    reference = form.format(module="lacking", place=place)
    with pytest.raises(SpecError) as caught:
        load_workload(reference)
    assert caught.value.given == reference
    assert "CategoryPairs, Mine" in caught.value.expected
    assert "Nine" in caught.value.fix


FINE = Outcome("knows its pairs only")


@pytest.mark.parametrize(
    ("declared", "subject"),
    [
        ({"outcomes": ("memorized",)}, "Mine.outcomes"),
        ({"outcomes": {"memorized": "a text"}}, "Mine.outcomes, memorized"),
        ({"outcomes": {"solved": FINE}}, "Mine.outcomes"),
        ({"outcomes": {"Two words": FINE}}, "Mine.outcomes"),
        ({"events": {"fits": "fits"}}, "a condition"),
        ({"files": "table.pt"}, "Mine.files"),
        ({"events": {"Fits it": lambda *_: None}}, "Mine.events"),
    ],
)
def test_outcomes_and_events_that_cannot_be_declared(declared: dict[str, Any], subject: str) -> None:
    with refused(subject, SpecError):
        check_declarations(type("Mine", (CategoryPairs,), declared))


@dataclass(frozen=True, kw_only=True)
class TakenName(CategoryPairsParameters):
    static_key: int = parameter(8, "width")  # type: ignore[assignment]


@pytest.mark.parametrize("declared", [{"parameters": TakenName}, {"level_names": ("zero", "solved")}])
def test_names_that_attnsweep_uses_itself_are_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        check_declarations(type("Mine", (CategoryPairs,), declared))
