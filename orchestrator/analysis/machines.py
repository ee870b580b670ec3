"""The types of machine that trained a sweep's trainings. On machines of two types, equal trainings may differ in their
last bits."""

from collections import Counter
from collections.abc import Mapping

import duckdb

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory


def environments_in(connection: duckdb.DuckDBPyConnection) -> dict[str | None, int]:
    """Trainings by the id of their environment."""
    return dict(connection.sql("select environment::varchar, count(*) from trainings group by 1").fetchall())


def types_in_words(trainings: Mapping[str | None, int], directory: SweepDirectory) -> str:
    """Such as `600 on x86_64, AVX512, PyTorch 2.13.0; 424 on x86_64, AVX2, PyTorch 2.13.0`."""
    n_by_type: Counter[str] = Counter()
    for name, n in trainings.items():
        if name is not None and name in directory.environments:
            n_by_type[directory.environments[name].type_in_words] += n
    return "; ".join(f"{n:,} on {machine}" for machine, n in n_by_type.most_common())
