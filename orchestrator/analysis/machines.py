"""The types of machine that trained the rows of sweeps: between two of them last bits of equal trainings may differ."""

from collections import Counter
from collections.abc import Iterable, Mapping

import duckdb

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory


def environments_in(connection: duckdb.DuckDBPyConnection) -> dict[str | None, int]:
    """Trainings by the id of their environment."""
    return dict(connection.sql("select environment::varchar, count(*) from trainings group by 1").fetchall())


def types_in_words(trainings: Mapping[str | None, int], directories: Iterable[SweepDirectory]) -> str:
    """`600 on x86_64, AVX512, PyTorch 2.13.0; 424 on x86_64, AVX2, PyTorch 2.13.0`, the most frequent first.

    Args:
        trainings: How many, by the id of their environment.
        directories: Their sweeps, which name the environments.
    """
    found: Counter[str] = Counter()
    for name, each in _named(trainings, directories).items():
        found[each.type_in_words] += trainings[name]
    return "; ".join(f"{n:,} on {name}" for name, n in found.most_common())


def are_several(trainings: Iterable[str | None], directories: Iterable[SweepDirectory]) -> bool:
    """Whether trainings of these environments, given by id, are known to be of more than one type of machine."""
    seen = _named(trainings, directories).values()
    return len({each.machine for each in seen} - {None}) > 1 or len({each.torch for each in seen}) > 1


def _named(trainings: Iterable[str | None], directories: Iterable[SweepDirectory]) -> dict[str, Environment]:
    environments = {name: each for directory in directories for name, each in directory.environments.items()}
    return {name: environments[name] for name in trainings if name is not None and name in environments}
