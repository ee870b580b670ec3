"""Sweeps of several drivers: checks which sweeps can be divided among drivers, and begins their shards."""

import time
from collections.abc import Callable

from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.entry import check_same
from attnsweep.orchestrator.running.summary import Summary, summarize
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.locks import TakenError
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.run_records import earlier_replays
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import UserCode

_FLAG = "--shard"
_PATIENCE_SECONDS, _LOOK_SECONDS = 30.0, 0.1
"""How long a driver waits for the record of the sweep while another driver writes it."""


def check_divisible(spec: Sweep, shard: Shard) -> None:
    """Refuses to divide a sweep among drivers if its trials depend on each other, or on anything that drivers would
    have to share.

    Raises:
        UserError: If the sweep cannot be divided, with the reason.
    """
    refusals = {
        f"sampler={spec.sampler}": (
            spec.sampler not in LEARN_NOTHING,
            "random, qmc or grid: other samplers learn from all trials, but a driver knows only its own",
        ),
        "a pruner": (spec.pruner is not None, "no pruner: it would compare each trial with all others"),
        f"seconds={spec.seconds}": (
            spec.seconds is not None,
            "a number of trials as the only limit, because each driver has its own clock",
        ),
        "a storage": (spec.storage is not None, "no storage: each driver keeps its study in its own directory"),
        f"{shard} of {spec.trials} trials": (shard.count > spec.trials, "at most as many drivers as trials"),
    }
    for given, (is_refused, expected) in refusals.items():
        if is_refused:
            raise UserError(
                _FLAG,
                given=given,
                expected=expected,
                fix="change the sweep's spec, or run the sweep with one driver by leaving out --shard",
            )


def found_whole(where: PlaceName, shard: Shard, spec: Sweep, code: UserCode | None) -> SweepDirectory | None:
    """Returns the divided sweep that a first driver has recorded in a directory; `None` if none is recorded yet.

    Raises:
        UserError: If the directory holds another sweep, or the same sweep with another number of shards.
    """
    if not SweepDirectory.is_there(where):
        return None
    whole = SweepDirectory.open_begun(where)
    check_same(spec, code, whole)
    if whole.shards != shard.count:
        divided = f"{whole.shards} shards" if whole.shards else "one driver"
        fix = f"write {_FLAG} I/{whole.shards}" if whole.shards else f"leave {_FLAG} out"
        raise UserError(
            _FLAG,
            given=f"the shard {shard} of the sweep {whole.place}, which has {divided}",
            expected="the number of shards that the sweep's first driver was given",
            fix=f"{fix}, or choose another --dir",
        )
    return whole


def begin_shard(
    where: PlaceName,
    shard: Shard,
    spec: Sweep,
    code: UserCode | None,
    environment: Environment,
    create: Callable[[PlaceName, int, Shard | None], SweepDirectory],
) -> SweepDirectory:
    """Creates the directory of a shard, and that of the whole sweep unless another driver has created it.

    Args:
        where: The sweep's directory.
        shard: The shard to begin.
        spec, code, environment: What this driver would run.
        create: Makes a directory, from its place, the number of shards of a divided sweep, and the shard.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while (whole := found_whole(where, shard, spec, code)) is None:
        try:
            create(where, shard.count, None)
        except UserError:
            # While another driver writes the record, opening the directory fails for a moment. Any other error lasts
            # longer than the wait.
            if not SweepDirectory.is_there(where) and time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)
    if whole.engine != environment.engine:
        raise UserError(
            "--engine",
            given=f"the engine {environment.engine}, while another driver has begun the sweep with the engine"
            f" {whole.engine}",
            expected=f"the same engine in all shards, {whole.engine}",
            fix="repeat the command",
        )
    if changes := whole.changes(environment):
        differences = "; ".join(changes)
        raise UserError(
            str(whole.place),
            given=differences,
            expected="the same library versions and code as those of the driver that began the sweep",
            fix="install the first driver's environment on this machine",
        )
    return create(whole.place.inside(shard.folder), 0, shard)


def refuse_whole(directory: SweepDirectory) -> None:
    """Refuses to run a sweep that is divided into shards as if it had one driver.

    Raises:
        UserError: If the sweep has shards.
    """
    if directory.shards:
        raise UserError(
            "--dir",
            given=f"the directory {directory.place} of a sweep of {directory.shards} shards",
            expected=f"the number of the shard to run, given by {_FLAG}",
            fix=f"add {_FLAG} I/{directory.shards}; or continue all shards that have begun: attnsweep resume"
            f" {as_argument(directory.place)}",
        )


def refuse_extension(directory: SweepDirectory) -> None:
    """Refuses to add trials or replicates to a divided sweep or to a shard.

    Raises:
        UserError: If the sweep has shards.
    """
    if directory.shards or directory.shard:
        raise UserError(
            "--trials, --replicates",
            given=f"the directory {directory.place} of a sweep of several drivers",
            expected="a sweep of one driver, because several drivers share the sweep's record, which must not change",
            fix="run a new sweep with another --seed, and read both sweeps together with open_sweep(A, B)",
        )


def home_of(where: PlaceName, shard: Shard | None) -> PlaceName:
    """Returns the directory that a driver writes to: the shard's, or the sweep's own without shards."""
    return where if shard is None else place_of(where, "--dir").inside(shard.folder)


def resume_shards(
    whole: SweepDirectory, resume: Callable[[PlaceName], Summary], console: Console, *, everything: bool
) -> Summary:
    """Continues all begun shards of a sweep one after the other, then summarizes the whole sweep.

    A shard that another process works on is skipped.

    Args:
        whole: The divided sweep.
        resume: Continues a shard.
        console: Where the shard that is being continued is printed.
        everything: Whether finished shards are resumed too.
    """
    began = time.monotonic()
    refused: dict[int, str] = {}
    n_before = Ledger(whole.place).trainings(columns=["trial"]).num_rows
    for part in whole.parts:
        if part.finished and not everything:
            continue
        console.print(f"shard {part.of_shard}: {part.place}", markup=False, soft_wrap=True)
        try:
            summary = resume(part.place)
        except TakenError as taken:
            console.print(str(taken), markup=False, soft_wrap=True)
            continue
        refused |= summary.refused
        if not summary.finished:
            break
    directory = SweepDirectory.open(whole.place)
    if words := directory.shortfall:
        console.print(words, markup=False, soft_wrap=True)
    return summarize(
        directory,
        refused=refused,
        finished=directory.finished,
        seconds=time.monotonic() - began,
        n_before=n_before,
        replays=earlier_replays(directory),
    )
