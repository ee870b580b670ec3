"""Runs the trainings of a reproduction: as a sweep, which can be resumed like any other, or directly in this
process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.compiling.building import compiled_engine
from attnsweep.workloads.engine.compiling.programs import Programs
from attnsweep.workloads.engine.contract import P, Training, Workload
from attnsweep.workloads.engine.executors import NoCompilerError
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value


def swept(
    name: str,
    directory: Path,
    console: Console,
    engine: Literal["auto", "eager"] = "eager",
    *,
    seed: int | None = None,
    local: bool = False,
    changed: Sweep | None = None,
) -> SweepDirectory:
    """Runs a sweep that is shipped with attnsweep to its end, or resumes it if its directory exists.

    Args:
        directory: The directory of the reproduction. The sweep is in its folder `name`, which may hold the sweep with
            another seed.
        engine: The engine with which the documents' numbers were measured; other engines differ in the last digits.
        seed: The seed of a new sweep; by default that of the shipped sweep.
    """
    path, spec, resources = directory / name, changed or load_sweep(name), Resources(engine=engine, local=local)
    if (path / SWEEP_FILE).exists():
        stored = SweepDirectory.open(path)
        if not is_same_but_for_seed(stored.spec, spec):
            expected = f"a new directory, or one with the sweep {name} of this version of attnsweep, with any seed"
            raise UserError("--dir", given=str(path), expected=expected, fix="choose another --dir")
        if stored.finished:
            return stored
        summary = resume_sweep(path, resources, console)
    else:
        spec = spec if seed is None else spec.but(seed=seed)
        summary = run_sweep(spec, path, resources, console)
    summary.print(console)
    if not summary.finished:
        raise KeyboardInterrupt
    return summary.directory


def is_same_but_for_seed(one: Sweep, other: Sweep) -> bool:
    """Returns whether two sweeps differ in nothing but their seeds."""
    return one.but(seed=other.seed) == other


def queried(sweep: SweepDirectory, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Runs an SQL query on the tables of a sweep's ledger, and returns the resulting rows as tuples."""
    with Ledger(sweep.place).connect() as connection:
        return connection.execute(query, list(parameters)).fetchall()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits PyTorch to one thread while the context manager is active, and restores the previous number afterwards."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


@dataclass(frozen=True)
class Trained(Generic[P]):
    """The result of training one configuration from several seeds to the end in this process: measurements and
    outcomes.

    Attributes:
        parameters: The parameters of the trainings.
        result: The measurements of the trainings.
        outcome: The outcomes of the trainings, (n_trainings,).
    """

    pack: Pack[P]
    parameters: P
    result: PackResult
    outcome: NDArray[np.str_]

    @property
    def evidence(self) -> Evidence:
        """The measured metrics of the trainings, each (n_trainings, n_probes). A probe is a measured step."""
        return self.result.evidence


def trained(
    workload: Workload[P],
    seeds: Iterable[int],
    values: Mapping[str, Value],
    *,
    compiled: bool = False,
    probes: Sequence[int] = (),
) -> Trained[P]:
    """Trains a model from each seed to its end, all in one batched program in this process, and returns the
    measurements and outcomes.

    Args:
        workload: The problem.
        seeds: The seeds of the trainings.
        values: Parameters that differ from the workload's defaults.
        compiled: Whether to use the block engine's programs, if this machine can compile.
        probes: Steps at which to measure, besides those of the workload.
    """
    parameters = workload.parameters.resolve(values)
    programs = compiled_programs(workload.name) if compiled else None
    trainings = [Training(parameters, seed) for seed in seeds]
    pack = Pack(workload, trainings, extra_probe_steps=probes, programs=programs)
    result = pack.train_to_end()
    outcome = result.at_last_probe(judged(workload, parameters, result.evidence).outcome)
    return Trained(pack, parameters, result, outcome)


_known: dict[str, Programs] = {}


def compiled_programs(workload: str) -> Programs | None:
    """Returns the compiled programs that train a workload's models, or `None` if this machine cannot compile.

    Args:
        workload: The workload's name.
    """
    try:
        compiled_engine()
    except NoCompilerError:
        return None
    return _known.setdefault(workload, Programs())
