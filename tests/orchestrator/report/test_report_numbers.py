"""The numbers of a report are those that an independent query gives."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from attnsweep.orchestrator.analysis.learning_curves import learning_curves
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, Question
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.report.regions import read_regions
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical
from tests.orchestrator.report.report_html import Element, read_html
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

pytestmark = pytest.mark.slow

SIGMAS = (5e-4, 5e-3, 5e-2, 0.5)
ENDS = (
    ["degenerate_zero"] * 3 + ["marginal"],
    ["degenerate_zero", "solved", "failed", "runaway"],
    ["solved"] * 4,
    ["solved", "solved", "plateau", "diverged"],
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    trials = [
        trial_rows(
            at * 2 + twin,
            outcomes,
            param_init_sigma=sigma,
            param_learning_rate=(5e-3, 5e-2)[twin],
            pack=f"p{at}-{twin}",
            level_zero=1.0,
            **({"certificate": "promotion", "certified": bool(twin)} if sigma == SIGMAS[0] else {}),
            loss_level=0.01,
            pack_size=4 + 4 * twin,
        )
        for at, (sigma, outcomes) in enumerate(zip(SIGMAS, ENDS, strict=True))
        for twin in range(2)
    ]
    return sweep_on_disk(tmp_path_factory.mktemp("numbers") / "sweep", small_sweep("numbers", trials=8), *trials)


@pytest.fixture(scope="module")
def page(sweep: SweepDirectory) -> Element:
    return read_html(make_report([sweep.place]).text)


def _rows(sweep: SweepDirectory, sql: str) -> list[tuple[Any, ...]]:
    """Reads the files directly, not through the ledger's views."""
    return present(duckdb.sql(sql.replace("trainings", f"'{sweep.place}/trainings/*.parquet'"))).fetchall()


def _share(text: str) -> float:
    found = re.match(r"(0\.\d\d|1\.00) \[(0\.\d\d|1\.00), (0\.\d\d|1\.00)\]", text)
    assert found is not None, text
    share, low, high = map(float, found.groups())
    assert low <= share <= high
    return share


def test_the_answer(sweep: SweepDirectory, page: Element) -> None:
    [(stuck, solved, n)] = _rows(
        sweep,
        "select count(*) filter (stuck), count(*) filter (outcome = 'solved'), count(*) from trainings"
        " where outcome <> 'failed'",
    )
    assert (stuck, solved, n) == (12, 14, 30)
    tiles = page.one("section", class_="answer").text
    assert "12 of 30 trainings" in tiles
    assert "14 of 30 trainings" in tiles
    assert _share(page.one("p", id="stuck-rate-1").text) == 0.40
    assert _share(page.one("p", id="solved-rate-1").text) == 0.47


def test_the_observed_cells(sweep: SweepDirectory, page: Element) -> None:
    counted = _rows(
        sweep,
        "select floor(log10(param_init_sigma)), floor(log10(param_learning_rate)), count(*) filter (stuck),"
        " count(*) filter (outcome = 'solved'), count(*) from trainings where outcome <> 'failed' group by 1, 2",
    )
    table = page.one("table", class_="regions")
    cells = [cell.text for cell in table.one("tbody").all("td")]
    assert len(cells) == len(counted) == 8
    # The parameter with fewer bins is horizontal, so that the table fits a phone.
    assert table.one("thead").text.strip().startswith("init_sigma \\ learning_rate")
    in_order = sorted(counted, key=lambda row: (-row[0], row[1]))
    for cell, (_, _, stuck, solved, n) in zip(cells, in_order, strict=True):
        assert f"stuck {stuck / n:.2f} [" in cell
        assert f"solved {solved / n:.2f} [" in cell
        assert f"1 trials, {n} trainings" in cell
    titles = {title.text.split(";")[0] for title in page.all("title")[1:] if "_sigma 1e" in title.text}
    assert len(titles) == 8
    assert "learning_rate 1e-3..1e-2, init_sigma 1e-4..1e-3: stuck 1.00 [0.51, 1.00] of 4 trainings, 1 trials" in titles


def test_learning_curves_are_quartiles_and_solved_trainings_stay(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("curves"), {})
    ended = {0: [8.0, 2.0, 0.5], 1: [8.0, 4.0, 1.0, 0.25, 0.125], 2: [6.0, 3.0, 1.5, 0.75, 0.25]}
    with open_writer(directory) as writer:
        commit(writer, trial_rows(0, ["solved"] * 3), ended)
        # Only one of the three reaches the last step, so the curve ends before.
        commit(writer, trial_rows(1, ["plateau"] * 3), {0: [5.0] * 5, 1: [4.0] * 2, 2: [3.0] * 2})
    with Ledger(directory.place).connect() as connection:
        solved, plateau = learning_curves(connection)["curve"].to_pylist()
    assert [point["step"] for point in solved] == [0, 1, 2, 4, 8]
    assert [point["n"] for point in solved] == [3] * 5
    assert [point["median"] for point in solved] == [8.0, 3.0, 1.0, 0.5, 0.25]
    assert (solved[0]["low"], solved[0]["high"]) == (7.0, 8.0)
    assert [(point["step"], point["median"]) for point in plateau] == [(0, 4.0), (1, 4.0)]


def test_the_most_important_parameters_are_the_axes(tmp_path: Path) -> None:
    spec = small_sweep("axes", trials=12)
    spec = spec.but(space={**spec.space, "n_categories": Categorical(choices=(4, 8))})
    trials = [
        trial_rows(
            at,
            ["degenerate_zero" if at // 2 % 2 else "solved"] * 4,
            param_n_categories=(4, 8)[at // 2 % 2],
            param_init_sigma=(5e-4, 5e-3, 5e-2)[at % 3],
            param_learning_rate=(5e-3, 5e-2)[at % 2],
        )
        for at in range(12)
    ]
    directory = sweep_on_disk(tmp_path / "sweep", spec, *trials)
    with Ledger(directory.place).connect() as connection:
        regions = read_regions(connection, spec, Question())
        avoided, sought = (
            read_regions(connection, spec, Question(zero, is_sought))
            for zero, is_sought in ((Ending("degenerate_zero"), False), (Ending("degenerate_zero"), True))
        )
    for found, best, share in ((avoided, "4", 0.0), (sought, "8", 1.0)):
        assert found is not None
        assert found.best is not None
        assert (found.labels(found.best)[0], found.best.asked.share) == (("n_categories", best), share)
    assert regions is not None
    assert next(iter(regions.explained.items())) == ("n_categories", 1.0)
    assert regions.axes[0].parameter == "n_categories"
    assert regions.best is not None
    assert regions.labels(regions.best)[0] == ("n_categories", "4")
    assert regions.best.solved.share == 1.0
