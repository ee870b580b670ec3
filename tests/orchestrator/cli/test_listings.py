"""Commands that list: sweeps below a folder, shipped sweeps, workloads, pages; and names that do not exist."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.cli.screen.listing import print_list
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.annotation import Annotation, parse_tags
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.yaml_text import read_yaml
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.registry import load_workload
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.trained_sweep import trained_sweep
from tests.refusals import refused


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with one sweep that has no rows yet."""
    annotation = Annotation("tries epsilon", {"paper": "figure-4"})
    SweepDirectory.create(tmp_path / "sweeps" / "deep" / "begun", small_sweep("small"), {}, **vars(annotation))
    return tmp_path / "sweeps"


def listed(*places: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    print_list([str(place) for place in places], as_json=True)
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_sweep_is_found_below_a_folder(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = listed(begun, capsys=capsys)
    place = begun / "deep" / "begun"
    assert (one["place"], one["state"], one["n_trainings"]) == (str(place), "not finished", 0)
    assert (one["note"], one["tags"]) == ("tries epsilon", {"paper": "figure-4"})
    assert one["n_bytes"] == sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert listed(place, capsys=capsys) == [one]


@pytest.mark.slow
def test_the_rates_are_those_of_the_ledger(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    directory = trained_sweep(begun / "trained", small_sweep("small"))
    trained, _ = listed(begun, capsys=capsys)  # The newest first.
    stuck = Ledger(directory.place).trainings(columns=["stuck"])["stuck"].to_pylist()
    assert (trained["state"], trained["n_trainings"]) == ("finished", len(stuck))
    assert trained["stuck"]["share"] == pytest.approx(sum(stuck) / len(stuck))  # type: ignore[index]
    print_list([str(begun)], as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "not finished 0 - -" in text
    assert "paper=figure-4; tries epsilon" in text


@pytest.mark.parametrize("text", ["paper", "a=1", "mlflow.user=me", "a b=1"])
def test_a_tag_that_cannot_be(text: str) -> None:
    with refused("--tag", UserError):
        parse_tags(["a=0", text])


@pytest.mark.scale
@pytest.mark.slow
def test_a_run_remembers_and_tells(tmp_path: Path, no_mlflow: None) -> None:
    spec, told = tmp_path / "small.json", tmp_path / "told.json"
    spec.write_text(small_sweep("small").to_json())
    arguments = ["run", str(spec), "--local", "--dir", str(tmp_path / "s"), "--note", "a", "--tag", "b=c=d", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--no-report", "--on-finish", f"cat > {told}; exit 1"])
    assert done.exit_code == 0
    at_hook, at_end = json.loads(told.read_text()), json.loads(done.stdout.splitlines()[-1])
    times = {name: at_end[name] for name in ("seconds", "trainings_per_second")}
    assert at_hook | times == at_end
    # The seconds are those of the command, hook included.
    assert at_hook["seconds"] < at_end["seconds"]
    assert "ended with exit code 1" in done.stderr
    found = SweepDirectory.open(tmp_path / "s")
    assert (found.note, dict(found.tags)) == ("a", {"b": "c=d"})


def shown(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout.splitlines()


def test_each_shipped_sweep_has_its_line() -> None:
    lines = shown("specs")
    (line,) = [line for line in lines if line.startswith("quickstart ")]
    assert line.split()[1:5] == ["category_pairs", "128", "x", "8"]
    assert "init_sigma, learning_rate" in " ".join(" ".join(lines).split())
    text = "\n".join(shown("specs", "quickstart"))
    assert Sweep.from_json(json.dumps(read_yaml(text))) == load_sweep("quickstart")


@pytest.mark.slow
def test_a_workload_shows_each_parameter() -> None:
    lines = shown("workloads", "category_pairs", "--set", "learning_rate=0.25")
    assert lines[0].startswith("category_pairs: ")
    assert lines[1].startswith("engine: ")
    assert set(load_workload("category_pairs").parameters.declared()) <= {line.split()[0] for line in lines if line}
    assert "learning_rate = 0.25   (float > 0)" in lines
    assert "optimizer = sgd   (str sgd, adam, adamw, lbfgs, static)" in lines
    assert "init_sigma = 0.1   (float >= 0, or null)" in lines


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("specs", "quickstrat"), "quickstart"),
        (("run", "quickstart", "--local", "--set", "init_sgima=1", "--dir", "d"), "init_sigma"),
        (("workloads", "category_pair"), "category_pairs"),
        (("reproduce", "shin-fig4"), "shin-fig3"),
    ],
)
def test_the_likely_name_is_suggested(arguments: tuple[str, ...], meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UserError) as raised:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert raised.value.fix == f"did you mean {meant}?"


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["docs", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_page_is_printed_by_its_name_and_a_section_by_its_heading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "# Sweeps\n\n## Keep weights\n\n```bash\n# weights\n```\n\n### Where\n\n`--keep-weights`\n\n## Else\n"
    note = "# Counting\n"
    (tmp_path / "notes").mkdir()
    (tmp_path / "sweeps.md").write_text(page)
    (tmp_path / "notes" / "2026-11-26-counting.md").write_text(note)
    monkeypatch.setattr("attnsweep.orchestrator.cli.pages._DOCS", tmp_path)
    assert printed("sweeps") == printed("Sweeps.md") == page + "\n"
    assert printed("2026-11-26-counting") == note + "\n"
    section = page[page.index("## Keep") : page.index("## Else")].strip()
    assert printed("weights") == f"*sweeps*\n\n{section}\n\n"
    assert printed("keep-weights") == "sweeps: `--keep-weights`\n"


def test_the_pages_come_with_the_package() -> None:
    assert printed("tutorial").startswith("# ")
