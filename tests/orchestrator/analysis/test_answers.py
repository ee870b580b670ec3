"""What all answers share: tables in three formats, one line of text, and HTML in which untrusted names are escaped."""

import base64
import builtins
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from attnsweep import compare, open_sweep
from attnsweep.orchestrator.analysis.answer import Answer, Record
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

HOSTILE = "<script>alert('\x1b[2J')</script>"
BY = ("init_sigma", "learning_rate")
ASKED: dict[str, Callable[[SweepData], Answer]] = {
    "StuckRates": lambda sweep: sweep.stuck_rates(by=BY),
    "OutcomeRates": lambda sweep: sweep.outcomes(by="init_sigma"),
    "PhaseDiagram": lambda sweep: sweep.phase_diagram(*BY),
    "Onset": lambda sweep: sweep.onset("solved", by="init_sigma"),
    "SweepComparison": lambda sweep: compare(sweep, sweep, by="init_sigma"),
}


@dataclass(frozen=True, slots=True)
class _Inner(Record):
    low: float
    label: str = "inner"

    json_keys = ("low", "name=label")


@dataclass(frozen=True, slots=True)
class _Outer(Record):
    what: str
    inner: _Inner
    by: tuple[_Inner, ...]

    json_keys = ("what", "shown=inner.label", "**inner", "by")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    trials = [trial_rows(n, [HOSTILE, "solved"], param_attention_scale=(HOSTILE, "one")[n % 2]) for n in range(12)]
    path = tmp_path_factory.mktemp("sweeps") / "<b>hostile"
    sweep_on_disk(path, small_sweep("hostile", trials=12, replicates=2), *trials)
    return open_sweep(path)


def test_json_has_the_keys_that_a_record_names_and_no_number_that_is_not_finite() -> None:
    found = _Outer("one", _Inner(0.5), (_Inner(float("inf")),)).as_json()
    expected = {"what": "one", "shown": "inner", "low": 0.5, "name": "inner", "by": [{"low": None, "name": "inner"}]}
    assert (found, list(found)) == (expected, list(expected))


def _cells(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


@pytest.mark.slow
@pytest.mark.sample("StuckRates", "PhaseDiagram")
@pytest.mark.parametrize("name", ASKED)
def test_an_answer_has_three_tables_one_line_and_a_page(sweep: SweepData, name: str) -> None:
    answer = ASKED[name](sweep)
    table = answer.to_arrow()
    assert list(answer.to_pandas().columns) == answer.to_polars().columns == table.column_names
    assert len(answer.to_pandas()) == answer.to_polars().height == table.num_rows > 0
    assert answer.to_polars().to_dicts() == table.to_pylist()
    assert re.fullmatch(rf"{name}\(.{{10,285}}\)", repr(answer))
    page = answer._repr_html_()
    assert page.startswith(f"<p><b>{name}</b> ")
    assert len(_cells(page)) > 1
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert [base64.b64decode(each)[:4] for each in images] == [b"\x89PNG"] * hasattr(answer, "plot")
    assert len(page) < 200_000


@pytest.mark.slow
def test_untrusted_names_are_escaped(hostile: SweepData) -> None:
    answers = (
        hostile.outcomes(by="attention_scale"),
        hostile.stuck_rates(by="attention_scale"),
        hostile.onset("solved", by="attention_scale"),
        compare(hostile, hostile, by="attention_scale"),
    )
    for shown in (hostile, *answers):
        page = shown._repr_html_()
        assert "&lt;" in page
        assert r"\x1b[2J" in page or shown is hostile
        assert re.findall(r"<script|<b>hostile|\x1b", page) == []
        assert "\x1b" not in repr(shown)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.slow
def test_a_missing_library_is_named_with_its_install(
    sweep: SweepData, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    rates, real = sweep.stuck_rates(), builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == library:
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        UserError,
        match=f"got '{library}', expected the installed library {library}; install it with: pip install {library}",
    ):
        getattr(rates, f"to_{library}")()
