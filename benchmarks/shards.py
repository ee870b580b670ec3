"""What a sweep of many drivers costs its readers, and an object store: seconds per shard, and requests per commit.

    python benchmarks/shards.py [--parts reading requests] [--shards 10 100 1000] [--commits 3]
        [--out benchmarks/shards.json]

- `reading`: sweeps of so many shards on this disk, each with so many commits of 16 trainings of system P, as drivers
  leave them in mid-sweep. Seconds to open the record and all shards', to count and group all rows in SQL, to print the
  status; and how many files a query holds open at once.
- `requests`: the requests of one shard to an object store, by kind, as moto's server counts them; and what a thousand
  of each step cost at the prices below. A commit is the rows of packs and the study's entries before them.

The prices are those of Amazon S3 Standard in us-east-1, from AWS's price list of 2026-09-28 (version 20260928230416 of
`pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonS3`): 0.005 dollars for 1,000 requests of PUT, COPY, POST or
LIST, 0.0004 for 1,000 of any other kind; requests of DELETE are free.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import apart, chosen, main

if TYPE_CHECKING:
    import pyarrow as pa

    from attnsweep import Sweep
    from attnsweep.orchestrator.ledger.writer import LedgerWriter
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

PARTS = ("reading", "requests")
REPLICATES = 16
DOLLARS = {"PUT": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}
"""Of one request. A removal of many objects at once is a POST that is billed as DELETE."""


def measure(
    *, parts: tuple[str, ...] = PARTS, shards: tuple[int, ...] = (10, 100, 1000), commits: int = 3
) -> dict[str, Any]:
    """Measures the parts, each in a process of its own."""
    found: dict[str, Any] = {}
    for part in chosen(PARTS, parts):
        if part == "requests":
            found[part] = apart(count_requests)[0]["rows"]
        else:
            found[part] = [apart(read, n_shards=n_shards, commits=commits)[0] for n_shards in shards]
    return found


def read(n_shards: int, commits: int) -> dict[str, Any]:
    """Makes a sweep of so many shards, and times its readers."""
    from attnsweep.orchestrator.cli.screen.status import _lines
    from attnsweep.orchestrator.ledger.reader import Ledger
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    whole, spec, table = _whole(Path("sweep"), n_shards * commits, n_shards)
    for index in range(n_shards):
        shard = _shard(whole, spec, index)
        with _writer(shard) as writer:
            for number in range(commits):
                _commit(writer, table, shard.of_shard.trial(number))
    ledger = Ledger(whole.place)
    sql = "select param_init_sigma is null, count(*), avg(stuck::int) from trainings group by 1"
    seconds = {
        "open_seconds": _seconds(lambda: SweepDirectory.open(whole.place)),
        "query_seconds": _seconds(lambda: ledger.ask(lambda connection: connection.execute(sql).fetchall())),
        "status_seconds": _seconds(lambda: list(_lines(SweepDirectory.open(whole.place)))),
    }
    with ledger.connect():
        n_open = len([*Path("/proc/self/fd").iterdir()])
    rows = ledger.trainings(columns=["trial"]).num_rows
    return {"shards": n_shards, "trainings": rows, "open_files": n_open} | seconds


def count_requests() -> dict[str, Any]:
    """The requests of one shard's steps, and of readers of a sweep of two."""
    from attnsweep.orchestrator.ledger.compaction import MAX_FRAGMENTS
    from attnsweep.orchestrator.ledger.reader import Ledger
    from attnsweep.orchestrator.running.study import Study
    from attnsweep.orchestrator.storage.run_records import Beacon
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    rows = []
    with _counted() as counts:

        def count(step: str, act: Callable[[], Any], times: int = 1) -> Any:
            counts.clear()
            done = act()
            each = {kind: round(n / times, 2) for kind, n in sorted(counts.items())}
            dollars = 1000 * sum(DOLLARS[kind] * n for kind, n in each.items())
            rows.append({"step": step, **dict.fromkeys(DOLLARS, 0), **each, "dollars_for_1000": round(dollars, 4)})
            return done

        whole, spec, table = _whole("s3://bench/sweep", 64, 2)
        shard = count("begin a shard: its record", lambda: _shard(whole, spec, 0))
        writer = count("begin a shard: lease, folders, ledger", lambda: _writer(shard))
        study = count("begin a shard: study", lambda: Study(shard))

        def commit() -> None:
            trial = study.ask().trial
            study.save()
            _commit(writer, table, trial)

        commit()
        count("commit", commit)
        while len(shard.place.names("trainings")) < MAX_FRAGMENTS:
            commit()
        count("commit that merges", commit)
        count("progress, every 15 s", Beacon(shard.place).end)
        count("lease, every 30 s", writer._lock._renew)
        count("end of a shard", lambda: (shard.record_run(finished=True, seconds=1.0), writer.close()))
        other = _shard(whole, spec, 1)
        with _writer(other) as others:
            _commit(others, table, 1)
        count("read the records, for each shard", lambda: SweepDirectory.open(whole.place).shortfall, times=2)
        ask = "select count(*), avg(stuck::int) from trainings"
        count(
            "query of trainings, for each shard of one fragment",
            lambda: Ledger(whole.place).ask(lambda connection: connection.execute(ask).fetchall()),
            times=2,
        )
    return {"rows": rows}


def _whole(where: Any, trials: int, n_shards: int) -> "tuple[SweepDirectory, Sweep, dict[str, pa.Table]]":
    """A new sweep of so many shards, and the rows of one of its trials."""
    from driver_scale import RowsOfPacks

    from attnsweep import Float, Sweep
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.training.messages import PackOrder
    from attnsweep.orchestrator.training.tasks import tasks_of
    from attnsweep.workloads.registry import load_workload

    space: dict[str, Any] = {"n_steps": 200, "n_categories": 4, "n_positions": 6}
    space |= {"init_sigma": Float(1e-4, 1.0, log=True), "learning_rate": Float(1e-4, 5e-2, log=True)}
    spec = Sweep(
        name="s", workload="category_pairs", space=space, sampler="random", trials=trials, replicates=REPLICATES
    )
    workload = load_workload(spec.workload)
    declared = workload.parameters.declared()
    defaults = {name: each.default for name, each in declared.items() if name not in spec.space}
    whole = SweepDirectory.create(where, spec, defaults, shards=n_shards)
    values = {"n_steps": 200, "n_categories": 4, "n_positions": 6, "init_sigma": 0.1, "learning_rate": 0.01}
    order = PackOrder("000000", tasks_of(whole, workload.parameters, 0, values, range(REPLICATES)))
    rows = RowsOfPacks(whole.sweep, workload).of(order)
    return whole, spec, {"trainings": rows.trainings, "curves": rows.curves}


def _shard(whole: "SweepDirectory", spec: "Sweep", index: int) -> "SweepDirectory":
    from attnsweep.orchestrator.storage.shards import Shard
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    shard = Shard(index, whole.shards)
    return SweepDirectory.create(whole.place.inside(shard.folder), spec, whole.defaults, shard=shard)


def _writer(shard: "SweepDirectory") -> "LedgerWriter":
    from attnsweep.orchestrator.ledger.schema import schemas_of
    from attnsweep.orchestrator.ledger.writer import LedgerWriter
    from attnsweep.workloads.registry import load_workload

    schemas = {name: each for name, each in schemas_of(load_workload("category_pairs")).items() if name != "heads"}
    return LedgerWriter(shard.place, schemas, shard.spec_sha256)


def _commit(writer: "LedgerWriter", table: "dict[str, pa.Table]", trial: int) -> None:
    """Commits the rows as those of another trial."""
    import pyarrow as pa

    def renamed(rows: pa.Table) -> pa.Table:
        ids = [f"{trial}/{each}" for each in rows["training_id"].to_pylist()]
        columns = {"trial": pa.array([trial] * rows.num_rows, pa.int32()), "training_id": pa.array(ids)}
        for name, column in columns.items():
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows

    writer.commit(f"{trial:06d}", renamed(table["trainings"]), renamed(table["curves"]), None)


def _seconds(act: Callable[[], Any]) -> float:
    """CPU seconds of this process: of three times the least."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        act()
        spent.append(time.process_time() - began)
    return round(min(spent), 4)


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """A store on this machine with a bucket `bench`, and its requests by kind."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication
    from moto.server import ThreadedMotoServer
    from pyarrow.fs import S3FileSystem

    counts: Counter[str] = Counter()
    answer = DomainDispatcherApplication.__call__

    def counting(app: Any, environment: dict[str, Any], start_response: Any) -> Any:
        method, asked = environment["REQUEST_METHOD"], environment.get("QUERY_STRING", "")
        kind = "LIST" if "list-type" in asked else "DELETE" if "delete" in asked else method
        counts["PUT" if kind == "POST" else kind] += 1
        return answer(app, environment, start_response)

    DomainDispatcherApplication.__call__ = counting  # type: ignore[method-assign, assignment]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        S3FileSystem(
            endpoint_override=f"http://{host}:{port}", region="us-east-1", allow_bucket_creation=True
        ).create_dir("bench")
        yield counts
    finally:
        server.stop()


if __name__ == "__main__":
    main(measure)
