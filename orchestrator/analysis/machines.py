"""The types of machine that trained a sweep's trainings. On machines of two types, equal trainings may differ in their
last bits."""

from collections import Counter
from collections.abc import Iterable, Mapping

import duckdb

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory


def environments_in(connection: duckdb.DuckDBPyConnection) -> dict[str | None, int]:
    """Trainings by the id of their environment."""
    return dict(connection.sql("select environment::varchar, count(*) from trainings group by 1").fetchall())


def types_in_words(trainings: Mapping[str | None, int], directories: Iterable[SweepDirectory]) -> str:
    """Such as `600 on x86_64, AVX512, PyTorch 2.13.0; 424 on x86_64, AVX2, PyTorch 2.13.0`."""
    n_by_type: Counter[str] = Counter()
    for name, environment in _named(trainings, directories).items():
        n_by_type[environment.type_in_words] += trainings[name]
    return "; ".join(f"{n:,} on {machine}" for machine, n in n_by_type.most_common())


def are_several(trainings: Iterable[str | None], directories: Iterable[SweepDirectory]) -> bool:
    """Whether there is more than one type of machine, as far as environments are known."""
    seen = _named(trainings, directories).values()
    return len({machine.machine for machine in seen} - {None}) > 1 or len({machine.torch for machine in seen}) > 1


def _named(trainings: Iterable[str | None], directories: Iterable[SweepDirectory]) -> dict[str, Environment]:
    environments = {name: env for directory in directories for name, env in directory.environments.items()}
    return {name: environments[name] for name in trainings if name is not None and name in environments}
