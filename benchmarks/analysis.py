"""The report and four queries on a large ledger: 100,000 trainings, 5.2 million curve rows, 2 million head rows.

    python benchmarks/analysis.py [--trainings 100000] [--out benchmarks/analysis.json]

The trainings are made up, but in the real schema and written by the real writer. Each measurement runs in its own
process and gives wall seconds, including start-up and imports, and peak memory. For a query it also gives the seconds
that opening the ledger and answering take by themselves. The targets on 2 cores: a report in 60 s and 2 GiB, a query in
1 s.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Float, Int, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters

REPLICATES, PACK_SIZE, N_FILES = 16, 64, 40
STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PROBES, N_LAYERS, N_HEADS = (0, 32, 256, 1024, 2048), 2, 2
ROLES = np.array(["none", "positional", "syntactic", "rare_token"])
METRICS = ("eval_loss", "grad_norm", "loss", "param_norm")
OUTCOMES = np.array(["solved", "degenerate_zero", "marginal", "runaway", "plateau", "diverged", "failed"])
QUERIES = {
    "stuck_rate_by_decade": "select floor(log10(param_init_sigma)) as decade, floor(log10(param_learning_rate)),"
    " count(*), avg(stuck::int) from trainings where outcome <> 'failed' group by all order by all",
    "median_loss_by_outcome_and_step": "select outcome, step, median(value) from curves join trainings using (trial,"
    " replicate) where metric = 'eval_loss' group by all order by all",
    "roles_at_the_last_probe": "select layer, role, count(*) from heads semi join (select trial, replicate, max(step)"
    " as step from heads group by all) using (trial, replicate, step) group by all order by all",
    "best_trials": "select trial, solved_rate, loss_median from trials order by 2 desc, 3 limit 10",
}
_TIMED = """
import sys, time
from pathlib import Path
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.query import query_all
import duckdb
started = time.perf_counter()
query_all([Ledger(Path(sys.argv[1]))], sys.argv[2])
print(time.perf_counter() - started)
"""

_WATCHED = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = round(usage.ru_utime + usage.ru_stime, 2)
print(json.dumps({"cpu_seconds": seconds, "peak_mebibytes": round(usage.ru_maxrss / 1024, 1)}))
"""


def main() -> None:
    """Makes the ledger, measures, and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep"
        rows = make_ledger(path, options.trainings // REPLICATES)
        attnsweep = [sys.executable, "-c", "from attnsweep.orchestrator.cli import main; main()"]
        result = {
            "benchmark": "analysis",
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            **rows,
            "report": _measured([*attnsweep, "report", str(path), "--out", str(Path(folder) / "report.html")])[0],
            "queries": {name: _query(path, sql) for name, sql in QUERIES.items()},
        }
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def make_ledger(path: Path, n_trials: int) -> dict[str, int]:
    """Writes a sweep of made-up trainings; returns its numbers of rows by table."""
    spec = Sweep(
        name="large",
        workload="category_pairs",
        space={
            "init_sigma": Float(low=1e-4, high=1.0, log=True),
            "learning_rate": Float(low=1e-3, high=1e-1, log=True),
            "n_categories": Int(low=4, high=12),
        },
        trials=n_trials,
        replicates=REPLICATES,
    )
    directory = SweepDirectory.create(path, spec, {})
    schemas = schemas_of(CategoryPairs)
    schema = schemas["trainings"]
    draws = np.random.default_rng(0)
    n_rows = {"trainings": 0, "columns": len(schema), "curve_rows": 0, "head_rows": 0}
    with LedgerWriter(directory.place, schemas, directory.spec_sha256) as writer:
        for number, trials in enumerate(np.array_split(np.arange(n_trials), min(N_FILES, n_trials))):
            trainings = _trainings(schema, trials, draws)
            curves, heads = _curves(trainings, draws), _heads(trainings, draws)
            writer.commit(f"{number:06}", trainings, curves, heads)
            n_rows["trainings"] += trainings.num_rows
            n_rows["curve_rows"] += curves.num_rows
            n_rows["head_rows"] += heads.num_rows
    return n_rows | {"files": sum(1 for _ in (path / "trainings").glob("*.parquet"))}


def _trainings(schema: pa.Schema, trials: np.ndarray, draws: np.random.Generator) -> pa.Table:
    n = len(trials) * REPLICATES
    trial = np.repeat(trials, REPLICATES)
    sigma, rate = (np.repeat(10 ** draws.uniform(*ends, len(trials)), REPLICATES) for ends in ((-4, 0), (-3, -1)))
    hardness = np.clip(-np.log10(sigma * rate) / 7 + draws.normal(0, 0.1, n), 0.0, 1.0)
    place = np.where(draws.random(n) < hardness, draws.integers(1, 5, n), 0)
    place[draws.random(n) < 0.03] = 5
    place[draws.random(n) < 0.005] = 6
    outcome, failed = OUTCOMES[place], place == 6
    loss = np.where(place == 0, 1e-3, 0.9) * draws.lognormal(0, 0.2, n)
    columns: dict[str, object] = {
        f"param_{name}": [value] * n for name, value in CategoryPairsParameters().values().items()
    }
    columns |= {"sweep": ["large"] * n, "workload": ["category_pairs"] * n, "variant": ["positions_only"] * n}
    replicate = np.tile(np.arange(REPLICATES), len(trials))
    columns |= {"trial": trial, "replicate": replicate, "seed": draws.integers(2**62, size=n)}
    columns |= {"training_id": [f"{each:020x}" for each in trial * REPLICATES + replicate]}
    columns |= {"param_init_sigma": sigma, "param_learning_rate": rate}
    columns |= {"param_n_categories": np.repeat(draws.integers(4, 13, len(trials)), REPLICATES)}
    columns |= {"outcome": outcome, "stuck": (place >= 1) & (place <= 3)}
    columns |= {"eval_loss": pa.array(loss, mask=place >= 5), "final_loss": pa.array(loss, mask=place >= 5)}
    columns |= {"loss_level": [0.01] * n, "level_zero": [1.0] * n, "level_mean": [0.9] * n, "n_steps": [STEPS[-1]] * n}
    columns |= {"train_seconds": draws.lognormal(-2, 0.3, n), "pack_size": [PACK_SIZE] * n}
    columns |= {"pack": [f"{trials[0]}-{index // PACK_SIZE}" for index in range(n)], "lane": np.arange(n) % PACK_SIZE}
    columns |= {"device": ["cpu"] * n, "host": ["here"] * n}
    columns |= {"finished_at": pa.array(1_760_000_000_000_000 + trial, pa.timestamp("us", "UTC"))}
    columns |= {"error": pa.array(np.where(failed, "Traceback\nRuntimeError: made up", ""), mask=~failed)}
    return pa.table([_column(columns.get(field.name), field, n) for field in schema], schema=schema)


def _column(values: object, field: pa.Field, n: int) -> pa.Array:
    if values is None:
        return pa.nulls(n, field.type)
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    array: pa.Array = (values if isinstance(values, pa.Array) else pa.array(values)).cast(plain)
    return array.dictionary_encode() if pa.types.is_dictionary(field.type) else array


def _curves(trainings: pa.Table, draws: np.random.Generator) -> pa.Table:
    n, n_rows = trainings.num_rows, len(STEPS) * len(METRICS)
    rows = np.repeat(np.arange(n), n_rows)
    key = trainings.select(["training_id", "trial", "replicate"]).take(rows)
    last = trainings["eval_loss"].fill_null(1e6).to_numpy()
    decay = np.linspace(0, 1, len(STEPS))
    value = np.repeat(last[:, None] ** decay, len(METRICS), axis=0).ravel() * draws.lognormal(0, 0.05, n * n_rows)
    metric = pa.DictionaryArray.from_arrays(np.tile(np.repeat(np.arange(4, dtype=np.int32), len(STEPS)), n), METRICS)
    step = np.tile(np.array(STEPS, dtype=np.int32), n * len(METRICS))
    return pa.table([*key.columns, pa.array(step), metric, pa.array(value)], schema=schemas_of(CategoryPairs)["curves"])


def _heads(trainings: pa.Table, draws: np.random.Generator) -> pa.Table:
    """Half of the heads take a role at some probe, and keep it."""
    n, n_each = trainings.num_rows, N_LAYERS * N_HEADS
    role = draws.integers(0, 6, (n, n_each)) % 4
    since = draws.integers(0, len(PROBES), (n, n_each))
    roles = np.where(np.arange(len(PROBES))[None, None] >= since[..., None], role[..., None], 0).ravel()
    n_rows = n_each * len(PROBES)
    key = trainings.select(["training_id", "trial", "replicate"]).take(np.repeat(np.arange(n), n_rows))
    schema = schemas_of(CategoryPairs)["heads"]
    columns = {name: key[name] for name in key.column_names}
    columns |= {"step": np.tile(np.array(PROBES, np.int32), n * n_each)}
    columns |= {"layer": np.tile(np.repeat(np.arange(N_LAYERS, dtype=np.int32), N_HEADS * len(PROBES)), n)}
    columns |= {"head": np.tile(np.repeat(np.arange(N_HEADS, dtype=np.int32), len(PROBES)), n * N_LAYERS)}
    columns |= {"role": pa.DictionaryArray.from_arrays(roles.astype(np.int32), ROLES)}
    scores = [name for name in schema.names if name.startswith("score_")]
    columns |= {name: draws.random(n * n_rows) for name in scores}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _query(path: Path, sql: str) -> dict[str, float]:
    measured, printed = _measured([sys.executable, "-c", _TIMED, str(path), sql])
    return {"answer_seconds": round(float(printed), 2), **measured}


def _measured(command: list[str]) -> tuple[dict[str, float], str]:
    started = time.perf_counter()
    # Through a small process: Linux counts the memory of the forking parent in the child's peak.
    done = subprocess.run([sys.executable, "-c", _WATCHED, *command], stdout=subprocess.PIPE, text=True, check=True)
    wall_seconds = round(time.perf_counter() - started, 2)
    *printed, usage = done.stdout.splitlines()
    return {"wall_seconds": wall_seconds, **json.loads(usage)}, "\n".join(printed)


if __name__ == "__main__":
    main()
