"""The content of a sweep directory, an object store or a user's array is data, and is never executed."""

import ast
import json
import pickle
from pathlib import Path

import optuna
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import CmaEsSampler

from attnsweep import open_sweep
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE
from attnsweep.search_spaces.cma_es import JsonCmaEsSampler
from tests.orchestrator.small_sweep import folder_of, small_sweep, sweep_on_disk, trial_rows

ROOT = Path(__file__).parents[2]
LOADERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "copyreg", "jsonpickle"}
CALLS = {"torch.load", "torch.jit.load", "numpy.load", "np.load", "read_pickle", "to_pickle", "eval", "exec"}
"""`numpy.load` is called only with `allow_pickle=False`."""
JUSTIFIED = {
    # One function of ours, for nodes that may lack attnsweep.
    "orchestrator/tools/doctor/nodes.py": {"ray.cloudpickle"},
    # Writes an attribute of a module to compare it; reads none.
    "workloads/engine/constants.py": {"pickle"},
}


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def went_off(tmp_path: Path) -> Path:
    """The file that a bomb would create; asserts first that the bomb works."""
    path = tmp_path / "went off"
    pickle.loads(pickle.dumps(Bomb(path)))
    path.unlink()
    return path


def test_a_pickle_in_the_study_is_not_loaded(tmp_path: Path, went_off: Path) -> None:
    """Pickles under Optuna's attribute name, which its own sampler would load, and under ours."""
    directory = sweep_on_disk(tmp_path / "s", small_sweep("planted", sampler="cmaes", trials=30))
    study = Study(directory)
    for _ in range(3):
        study.tell(study.ask().trial, 0.5)
    last = study.ask().trial
    study.save()
    bomb = pickle.dumps(Bomb(went_off)).hex()
    with (folder_of(directory) / STUDY_FILE).open("a") as journal:
        for name in ("cma:optimizer:0", "cma:state:0"):
            line = {"op_code": 9, "worker_id": "x", "trial_id": last, "system_attr": {name: bomb}}
            journal.write(json.dumps(line) + "\n")
    again = Study(directory)
    again.tell(last, 0.5)
    again.save()
    attributes = Study(directory)._study.get_trials()[last].system_attrs
    assert attributes["cma:optimizer:0"] == attributes["cma:state:0"] == bomb
    with pytest.raises(ValueError, match=r"Extra data|Expecting value"):
        Study(directory).ask()
    assert not went_off.exists()


def test_a_study_by_cma_es_holds_no_pickle_and_draws_the_same() -> None:
    def drawn(kind: type[CmaEsSampler]) -> list[optuna.trial.FrozenTrial]:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study()
        space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "y": FloatDistribution(1e-3, 1, log=True)}
        for number in range(30):
            study.sampler = kind(seed=number, warn_independent_sampling=False)
            trial = study.ask(space)
            study.tell(trial, (trial.params["x"] - 0.3) ** 2 + trial.params["y"])
        return study.trials

    ours, optunas = drawn(JsonCmaEsSampler), drawn(CmaEsSampler)
    assert [trial.params for trial in ours] == [trial.params for trial in optunas]
    assert any("cma:optimizer:0" in trial.system_attrs for trial in optunas)
    kept = [trial.system_attrs for trial in ours if "cma:state:0" in trial.system_attrs]
    assert len(kept) >= 3
    for attributes in kept:
        parts = [attributes[f"cma:state:{at}"] for at in range(len(attributes) - 1)]
        assert json.loads("".join(parts))["_g"] > 0


def test_pickles_in_the_metadata_of_parquet_are_not_loaded(tmp_path: Path, went_off: Path) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("planted"), trial_rows(0, ["solved"] * 4))
    (file,) = (folder_of(directory) / "trainings").glob("*.parquet")
    table, bomb = pq.read_table(file), pickle.dumps(Bomb(went_off))
    extension = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb}
    table = table.append_column(pa.field("param_planted", pa.int64(), metadata=extension), pa.array([1] * 4))
    pandas = {
        b"pandas": b'{"index_columns": [], "columns": [], "creator": {"library": "pyarrow"}}',
        b"pickle": bomb,
        b"PANDAS_ATTRS": bomb,
    }
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **pandas}), file)
    assert Ledger(directory.place).trainings()["param_planted"].to_pylist() == [1] * 4
    assert query_all([Ledger(directory.place)], "select param_planted from trials").to_pylist() == [
        {"param_planted": 1}
    ]
    opened = open_sweep(directory.place)
    assert len(opened.trainings("pandas")) == len(opened.trainings("polars")) == 4
    assert not went_off.exists()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["workloads", "search_spaces", "orchestrator", "reproduction", "infra"])
def test_our_code_loads_no_pickle(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        place = str(path.relative_to(ROOT))
        assert _loaders(ast.parse(path.read_text())) <= JUSTIFIED.get(place, set()), place


def test_the_search_for_loaders_finds_them() -> None:
    source = "import pickle\nimport ray.cloudpickle\nfrom torch import load\ntorch.load(x)\nnp.load(x)\nexec(x)"
    assert _loaders(ast.parse(source)) == {"pickle", "ray.cloudpickle", "torch.load", "np.load", "exec"}
    assert _loaders(ast.parse("np.load(x, allow_pickle=False)\njson.load(x)\nmodel.eval()")) == set()


def _loaders(tree: ast.AST) -> set[str]:
    """The names of modules and calls in a file that run what they read."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names if LOADERS & set(each.name.split("."))}
            case ast.ImportFrom(module=str(module), names=names):
                named = {f"{module}.{each.name}" for each in names}
                found |= {each for each in named if LOADERS & set(each.split(".")) or each in CALLS}
            case ast.Call(func=function, keywords=keywords):
                safe = any(each.arg == "allow_pickle" and ast.unparse(each.value) == "False" for each in keywords)
                loose = any(each.arg == "allow_pickle" for each in keywords) and not safe
                if (ast.unparse(function) in CALLS and not safe) or loose:
                    found.add(ast.unparse(function))
    return found
