"""The report and four queries on a large ledger: 100,000 trainings, 5 million curve rows, 2 million head rows.

    python benchmarks/analysis.py [--trainings 100000] [--out benchmarks/analysis.json]

The ledger is that of a sweep of PARITY with the pool of `driver_scale.py`, which gives the rows of one real pack other
keys. Each measurement runs in its own process and gives wall seconds, including start-up and imports, and peak memory.
For a query it also gives the seconds that opening the ledger and answering take by themselves. The targets on 2 cores:
a report in 60 s and 2 GiB, a query in 1 s.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from harness import apart, attnsweep_command, main, spent_by, timed

REPLICATES = 16
QUERIES = {
    "stuck_rate_by_decade": "select floor(log10(param_init_sigma)) as decade, floor(log10(param_learning_rate)),"
    " count(*), avg(stuck::int) from trainings where outcome <> 'failed' group by all order by all",
    "median_loss_by_outcome_and_step": "select outcome, step, median(value) from curves join trainings using (trial,"
    " replicate) where metric = 'eval_loss' group by all order by all",
    "roles_at_the_last_probe": "select layer, role, count(*) from heads semi join (select trial, replicate, max(step)"
    " as step from heads group by all) using (trial, replicate, step) group by all order by all",
    "best_trials": "select trial, solved_rate, loss_median from trials order by 2 desc, 3 limit 10",
}


def measure(*, trainings: int = 100_000) -> dict[str, Any]:
    """Makes the ledger, and measures what reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/sweep"
        n_rows, _ = apart(make_ledger, path=path, n_trials=trainings // REPLICATES)
        report = spent_by(attnsweep_command("report", path, "--out", f"{folder}/report.html"), folder)
        rows = [{"what": "report", "answer_seconds": None, **report.figures()}]
        for name, sql in QUERIES.items():
            answer_seconds, spent = apart(seconds_of_query, path=path, sql=sql)
            rows.append({"what": name, "answer_seconds": answer_seconds, **spent.figures()})
    return {**n_rows, "rows": rows}


def seconds_of_query(path: str, sql: str) -> float:
    """Seconds to open the ledger and to answer."""
    import duckdb  # noqa: F401 - an import is no part of the answer

    from attnsweep.orchestrator.ledger.query import query_all
    from attnsweep.orchestrator.ledger.reader import Ledger

    return round(timed(lambda: query_all([Ledger(Path(path))], sql), time.perf_counter), 2)


def make_ledger(path: str, n_trials: int) -> dict[str, int]:
    """Makes a sweep that trains one pack; returns its numbers of rows by table."""
    from driver_scale import driven
    from pyarrow.dataset import dataset

    from attnsweep.search_spaces import Float, Sweep

    space: dict[str, Any] = {"language": "parity", "n_heads": 2, "n_epochs": 4, "steps_per_epoch": 8}
    space |= {"test_ladder": False, "stop_when_solved": False}
    space |= {"init_sigma": Float(1e-4, 1.0, log=True), "learning_rate": Float(1e-3, 1e-1, log=True)}
    course: dict[str, Any] = {"sampler": "random", "trials": n_trials, "replicates": REPLICATES}
    driven(Sweep(name="large", workload="formal_languages", space=space, **course), Path(path), trainers=64)
    n_rows = {table: dataset(f"{path}/{table}").count_rows() for table in ("trainings", "curves", "heads")}
    return n_rows | {"files": sum(1 for _ in Path(path, "trainings").glob("*.parquet"))}


if __name__ == "__main__":
    main(measure)
