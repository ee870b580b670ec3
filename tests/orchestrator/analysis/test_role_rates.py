"""Rates of roles over a sweep: the counts, the intervals, and where they are shown."""

import contextlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from rich.console import Console
from scipy import stats

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.results import SweepResults, read_results
from attnsweep.orchestrator.analysis.role_emergence import _SCORES
from attnsweep.orchestrator.analysis.role_results import RoleRate, emergence_figure, role_rates, role_rates_by
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.follow import sync
from attnsweep.orchestrator.tracking.report import add_report
from attnsweep.search_spaces import Categorical, Sequential, Sweep
from attnsweep.workloads.translation.translator import LAYERS
from attnsweep.workloads.vocabulary import NO_ROLE, ROLES
from tests.orchestrator import head_rows as made_up
from tests.orchestrator.drawn import bands, legend, lines, unreadable
from tests.orchestrator.head_rows import WORDS, Timelines, sweep_with_heads
from tests.orchestrator.small_sweep import STEPS, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

SPEC = small_sweep("roles", workload="translation", trials=6)


def _rates(directory: SweepDirectory, *, any_layer: bool = False) -> dict[tuple[int | None, str], RoleRate]:
    with Ledger(directory.place).connect() as connection:
        return {(each.layer, each.role): each for each in role_rates(connection, directory.spec, any_layer=any_layer)}


def _results(directory: SweepDirectory) -> SweepResults:
    with Ledger(directory.place).connect() as connection:
        return read_results(connection, directory.spec)


def _sweep(path: Path, *trials: Sequence[Timelines], spec: Sweep = SPEC) -> SweepDirectory:
    """One training for each element of a trial."""
    trainings = [trial_rows(number, ["plateau"] * len(trial)) for number, trial in enumerate(trials)]
    heads = [
        row
        for rows, trial in zip(trainings, trials, strict=True)
        for training, timelines in zip(rows, trial, strict=True)
        for row in made_up.head_rows(training, timelines)
    ]
    return sweep_with_heads(path, spec, trainings, heads)


@pytest.fixture(scope="module")
def random_sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """6 trials x 4 replicates x 2 layers x 3 heads, some trainings short, some failed or diverged."""
    rng = np.random.default_rng(5)
    trainings, heads = [], []
    for trial in range(6):
        ends = rng.choice(["plateau", "solved", "failed", "diverged"], 4, p=[0.4, 0.4, 0.1, 0.1]).tolist()
        trainings.append(trial_rows(trial, ends, param_init_sigma=float(10 ** rng.uniform(-4, 0))))
        for training in trainings[-1]:
            length = rng.integers(1, len(STEPS) + 1)
            timelines = {
                (layer, head): "".join(rng.choice(list(WORDS), length, p=[0.3, 0.15, 0.0, 0.55]))
                for layer in range(2)
                for head in range(3)
            }
            heads += made_up.head_rows(training, timelines)
    return sweep_with_heads(tmp_path_factory.mktemp("sweeps") / "s", SPEC, trainings, heads)


_COUNTED = """
select {by} count(*) as n, count(*) filter (has) as k, sum(heads) as heads, sum(with_role) as with_role from (
    select trial, replicate, {layer} as layer, bool_or(role = '{role}') as has, count(*) as heads,
        count(*) filter (role = '{role}') as with_role
    from heads
    where (trial, replicate, step) in (select (trial, replicate, max(step)) from heads group by trial, replicate)
    group by all
) join trainings using (trial, replicate) where outcome <> 'failed' and outcome <> 'diverged' {where} group by all
"""


@pytest.mark.slow
def test_rates_are_those_of_an_independent_query(random_sweep: SweepDirectory) -> None:
    rates = _rates(random_sweep)
    assert list(rates) == [(layer, role) for layer in range(2) for role in ("positional", "syntactic", "rare_token")]
    with Ledger(random_sweep.place).connect() as connection:
        for (layer, role), rate in rates.items():
            sql = _COUNTED.format(by="", layer="layer", role=role, where=f"and layer = {layer}")
            [(n, k, heads, with_role)] = connection.execute(sql).fetchall()
            assert (rate.rate.n, rate.rate.k) == (n, k)
            assert rate.head_share == pytest.approx(with_role / heads)
            assert 0 < n < 24
        assert {rate.rate.k for (_, role), rate in rates.items() if role == "rare_token"} == {0}
        for role in ("positional", "syntactic"):
            anywhere = _rates(random_sweep, any_layer=True)[None, role]
            [(n, k, heads, with_role)] = connection.execute(
                _COUNTED.format(by="", layer="0", role=role, where="")
            ).fetchall()
            assert (anywhere.rate.n, anywhere.rate.k) == (n, k)
            assert anywhere.head_share == pytest.approx(with_role / heads)


def test_rates_are_answers_as_the_others_are(random_sweep: SweepDirectory) -> None:
    with Ledger(random_sweep.place).connect() as connection:
        found, by = role_rates(connection, SPEC), role_rates_by(connection, SPEC)
    first, row = found[0], found.to_arrow().to_pylist()[0]
    assert (row["layer"], row["role"], row["rate"], row["low"]) == (
        first.layer,
        first.role,
        first.rate.share,
        first.rate.low,
    )
    assert repr(found).startswith(f"RoleRates({first.role} in layer {first.layer} ")
    assert found._repr_html_().count("<tr>") == len(found) + 1
    rows = by.to_arrow().to_pylist()
    assert len(rows) == sum(len(one.bins) for each in by for one in each.by_parameter)
    one = by[0].by_parameter[0].bins[0]
    assert (rows[0]["bin"], rows[0]["n_trials"], rows[0]["k"]) == (one.label, one.n_trials, one.rate.k)
    assert "<table>" in by._repr_html_()


def test_rates_by_parameter_are_those_of_an_independent_query(random_sweep: SweepDirectory) -> None:
    with Ledger(random_sweep.place).connect() as connection:
        found = {(each.layer, each.role): each.by_parameter for each in role_rates_by(connection, SPEC)}
        sql = _COUNTED.format(
            by="floor(log10(param_init_sigma)) as decade,", layer="layer", role="positional", where="and layer = 1"
        )
        expected = {f"1e{int(d)}..1e{int(d) + 1}": (n, k) for d, n, k, *_ in connection.execute(sql).fetchall()}
    sigma, rate = found[1, "positional"]
    assert (sigma.parameter, rate.parameter) == ("init_sigma", "learning_rate")
    assert {each.label: (each.rate.n, each.rate.k) for each in sigma.bins if each.rate.n} == expected
    assert len(expected) > 1


def test_a_trial_without_a_training_that_counts_is_in_no_bin(tmp_path: Path) -> None:
    trainings = [trial_rows(0, ["solved"] * 2), trial_rows(1, ["diverged"] * 2), trial_rows(2, ["solved"] * 2)]
    heads = [row for rows in trainings[:2] for each in rows for row in made_up.head_rows(each, {(0, 0): "pppp"})]
    directory = sweep_with_heads(tmp_path / "s", SPEC, trainings, heads)
    with Ledger(directory.place).connect() as connection:
        sigma = role_rates_by(connection, SPEC)[0].by_parameter[0]
    assert [(each.n_trials, each.rate.n) for each in sigma.bins if each.n_trials] == [(1, 2)]


def test_trainings_of_one_trial_are_not_taken_as_independent(tmp_path: Path) -> None:
    directory = _sweep(tmp_path / "s", [{(0, 0): "p"}] * 8, [{(0, 0): "p"}] * 8, *[[{(0, 0): "."}] * 8] * 4)
    rate = _rates(directory)[0, "positional"].rate
    once = stats.binomtest(2, 6).proportion_ci(method="exact")
    assert (rate.n, rate.k) == (48, 16)
    assert (rate.low, rate.high) == pytest.approx((once.low, once.high))


@pytest.mark.slow
def test_trials_that_chose_how_many_trainings_they_needed_count_once_each(tmp_path: Path) -> None:
    """Each trial counts once: in rates, shares of heads, by parameter and at the end of the curve."""
    spec = SPEC.but(replicates=Sequential(width=0.5, at_most=12, batch=2))
    directory = _sweep(
        tmp_path / "s", [{(0, 0): "pp"}] * 2, [{(0, 0): ".."}, {(0, 0): "pp"}] + [{(0, 0): ".."}] * 10, spec=spec
    )
    found = _results(directory).roles
    assert found is not None
    [rate] = [each for each in found.rates if each.role == "positional"]
    mean = (1 + 1 / 12) / 2
    assert (rate.rate.n, rate.rate.k) == (14, 3)
    assert (rate.rate.share, rate.head_share) == pytest.approx((mean, mean))
    assert found.emergence[0].curve[-1].share == pytest.approx(mean)
    [all_sigma] = [each.rate for each in found.by_parameter[0].by_parameter[0].bins if each.n_trials]
    assert all_sigma.share == pytest.approx(mean)
    data = open_sweep(directory.place)
    for by in (None, "layer"):
        assert data.emergence("positional", by=by).curves[0].curve[-1].share == pytest.approx(mean)


def test_the_last_probe_is_the_trainings_own(tmp_path: Path) -> None:
    directory = _sweep(tmp_path / "s", [{(0, 0): "..p", (0, 1): "..."}, {(0, 0): "..p..", (0, 1): "....."}])
    rate = _rates(directory)[0, "positional"]
    assert (rate.rate.k, rate.head_share) == (1, 0.25)


def test_a_role_is_listed_where_it_occurs_or_its_score_is_measured(tmp_path: Path) -> None:
    rows = trial_rows(0, ["solved"])
    timelines = {(0, 0): ["none"], (1, 0): ["mixed"]}
    heads = made_up.head_rows(rows[0], timelines)
    measured = sweep_with_heads(tmp_path / "some", SPEC, [rows], heads, measured=["rare_token"])
    assert list(_rates(measured)) == [(0, "rare_token"), (0, "mixed"), (1, "rare_token"), (1, "mixed")]
    assert "| mixed | encoder_self | " in _results(measured).markdown()
    bare = sweep_with_heads(tmp_path / "none", SPEC, [rows], heads, score_names=(), measured=())
    assert {cell: each.rate.k for cell, each in _rates(bare).items()} == {(0, "mixed"): 0, (1, "mixed"): 1}
    assert {*_SCORES, NO_ROLE} == set(ROLES)


@pytest.mark.slow
def test_a_sweep_without_heads_has_no_roles(tmp_path: Path) -> None:
    without = sweep_on_disk(tmp_path / "without", SPEC, trial_rows(0, ["solved"] * 4))
    rows = trial_rows(0, ["solved"])
    idle = sweep_with_heads(tmp_path / "idle", SPEC, [rows], made_up.head_rows(rows[0], {(0, 0): ".."}), (), ())
    failed = trial_rows(0, ["diverged"])
    lost = sweep_with_heads(tmp_path / "lost", SPEC, [failed], made_up.head_rows(failed[0], {(0, 0): "pp"}))
    for directory in (without, idle, lost):
        found = _results(directory)
        assert found.roles is found.as_json()["roles"] is None
        assert "role" not in found.markdown()


@pytest.fixture
def shown(tmp_path: Path) -> SweepDirectory:
    """3 layers, positional in the encoder from step 4 on, in 3 of 8 trainings."""
    heads = {(layer, head): "....." for layer in range(3) for head in range(2)}
    positional = heads | {(0, 1): "...pp"}
    return _sweep(tmp_path / "s", [positional] * 3 + [heads], [heads] * 4)


def test_the_summary_shows_roles_within_80_columns(shown: SweepDirectory) -> None:
    summary = Summary(
        directory=shown,
        results=_results(shown),
        refused={},
        finished=True,
        n_trials=2,
        seconds=1.0,
        n_new=8,
        mlflow="-",
        in_mlflow=True,
        replays=None,
    )
    console = Console(width=80, record=True, file=io.StringIO())
    summary.print(console)
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    table = lines.index("role layer trainings (95% interval) heads emerges at step")
    assert lines[table + 1].startswith("positional encoder_self 0.38 [")
    assert lines[table + 1].endswith("] of 8 18.8% 2 to 4 (50%)")
    assert [line.split()[:2] for line in lines[table + 1 : table + 10]] == [
        [role, layer] for role in ("positional", "syntactic", "rare_token") for layer in LAYERS
    ]
    assert lines[table + 2].endswith("of 8 0.0% -")
    told = json.loads(summary.to_json())
    assert told["stuck_rate"] == 0.0
    assert len(told["roles"]) == 9
    first = told["roles"][0]
    assert (first["role"], first["layer"], first["layer_name"]) == ("positional", 0, "encoder_self")
    assert (first["n"], first["k"], first["share"], first["head_share"]) == (8, 3, 0.375, 0.1875)
    assert (first["median_before"], first["median_step"], first["median_share_of_steps"]) == (2, 4, 0.5)
    assert 0 < first["low"] < 0.375 < first["high"] < 1


def test_layers_have_numbers_where_the_workload_is_gone(tmp_path: Path) -> None:
    spec = SPEC.but(workload=f"{tmp_path}/gone.py:Gone")
    found = _results(_sweep(tmp_path / "s", [{(2, 0): "p"}], spec=spec))
    assert [each["layer_name"] for each in found.as_json()["roles"]] == ["2"] * 3


def test_findings_have_rates_by_parameter_and_wide_ones_stay_out_of_the_description(shown: SweepDirectory) -> None:
    found = _results(shown)
    first = json.loads(json.dumps(found.as_json(), allow_nan=False))["role_rates_by"][0]
    assert (first["role"], first["layer_name"]) == ("positional", "encoder_self")
    assert [each["parameter"] for each in first["by"]] == ["init_sigma", "learning_rate"]
    assert sum(each["k"] for each in first["by"][0]["bins"]) == 3
    assert found.markdown().count("| trials |") == 2


@pytest.mark.slow
def test_the_figure_has_a_panel_per_layer_and_a_curve_per_role(shown: SweepDirectory) -> None:
    roles = _results(shown).roles
    assert roles is not None
    figure = emergence_figure(roles, title="figure")
    assert figure.get_suptitle() == "figure"
    assert legend(figure) == ["positional", "syntactic", "rare token"]
    assert unreadable(figure) == []
    assert [panel.get_title() for panel in figure.axes] == [
        f"{layer}, 8 trainings" for layer in ("encoder self", "decoder self", "cross")
    ]
    drawn = figure.axes[0].get_lines()
    assert [line.get_label() for line in drawn] == ["positional", "syntactic", "rare_token"]
    assert lines(figure.axes[0])[0] == [[0.0, 0.0], [3.0, 0.0], [4.0, 0.375]]
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 3
    curve = roles.emergence[0].curve
    assert bands(figure.axes[0])[0] == {(point.step, end) for point in curve for end in (point.low, point.high)}
    assert [panel.get_xscale() for panel in figure.axes] == ["linear"] * 3


def test_early_probes_have_room_in_the_figure(tmp_path: Path) -> None:
    rows, steps = trial_rows(0, ["plateau"] * 2, n_steps=1000), (0, 10, 100, 1000)
    heads = [row for each in rows for row in made_up.head_rows(each, {(0, 0): ".ppp", (0, 1): "..ss"}, steps)]
    roles = present(_results(sweep_with_heads(tmp_path / "s", SPEC, [rows], heads)).roles)
    assert [each.median_share for each in roles.emergence] == [0.01, 0.1, None]
    figure = emergence_figure(roles)
    assert figure.axes[0].get_xscale() == "symlog"


@pytest.mark.scale
def test_mlflow_has_the_figure_and_the_table(
    shown: SweepDirectory, tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sync(shown, mlflow_uri)
    add_report(shown, mlflow_uri)
    client = MlflowClient(mlflow_uri)
    [experiment] = [each for each in client.search_experiments() if each.name == "translation"]
    [parent] = client.search_runs([experiment.experiment_id], "tags.`attnsweep.kind` = 'sweep'")
    assert {file.path for file in client.list_artifacts(parent.info.run_id, "figures")} == {
        "figures/stuck_rate.png",
        "figures/roles.png",
    }
    assert "| positional | encoder_self | 0.38 [" in parent.data.tags["mlflow.note.content"]
    assert parent.data.metrics["roles/positional_encoder_self_rate"] == pytest.approx(0.375)
    assert parent.data.metrics["roles/positional_encoder_self_median_step"] > 0


@pytest.mark.slow
def test_the_section_of_docs_roles_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's Python, and its SQL, which gives the same numbers."""
    spec = small_sweep("head_roles", space={"n_categories": Categorical(choices=(5, 10))}, trials=2)
    trainings = [trial_rows(trial, ["plateau"] * 4, param_n_categories=5 + 5 * trial) for trial in range(2)]
    timelines = ["....p", "....p", "pppp.", "....."]
    heads = [
        row
        for rows in trainings
        for each, letters in zip(rows, timelines, strict=True)
        for row in made_up.head_rows(each, {(0, 0): letters, (0, 1): "....."})
    ]
    monkeypatch.chdir(tmp_path)
    directory = sweep_with_heads(tmp_path / "sweeps/head_roles", spec, trainings, heads)
    section = (Path(__file__).parents[3] / "docs/roles.md").read_text().partition("## Rates over a sweep")[2]
    [snippet] = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, "docs/roles.md", "exec"), {})
    assert printed.getvalue().startswith("0 positional 0.5 ")
    assert "0 positional n_categories [('5', 0.5), ('10', 0.5)]" in printed.getvalue()
    [sql] = re.findall(r'^attnsweep query sweeps/head_roles "(.*)"$', section, re.MULTILINE)
    found = query_all([Ledger(directory.place)], sql.replace("param_n_heads", "param_n_categories"))
    assert [tuple(row.values()) for row in found.to_pylist()] == [(5, 0.5, 4), (10, 0.5, 4)]
