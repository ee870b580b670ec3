"""A sweep of several drivers: what can be divided among them, and how each begins its shard."""

import time
from collections.abc import Callable

from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.entry import check_same
from attnsweep.orchestrator.running.summary import Summary, summarize
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.owner import TakenError
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.replays import earlier_replays
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import UserCode

_FLAG = "--shard"
_PATIENCE_SECONDS, _LOOK_SECONDS = 30.0, 0.1
"""How long a driver waits for the record of the sweep that another one is writing at the same time."""


def check_divisible(spec: Sweep, shard: Shard) -> None:
    """Refuses to divide a sweep whose trials depend on each other, or on something that drivers would have to share.

    Raises:
        UserError: With the reason.
    """
    refusals = {
        f"sampler={spec.sampler}": (
            spec.sampler not in LEARN_NOTHING,
            "random, qmc or grid: another one learns from all trials, and a driver knows its own alone",
        ),
        "a pruner": (spec.pruner is not None, "none: it compares each trial with all others"),
        f"seconds={spec.seconds}": (
            spec.seconds is not None,
            "a number of trials as the only limit: each driver has a clock of its own",
        ),
        "a storage": (spec.storage is not None, "none: each driver keeps its study in its own directory"),
        f"{shard} of {spec.trials} trials": (shard.count > spec.trials, "at most as many drivers as trials"),
    }
    for given, (is_refused, expected) in refusals.items():
        if is_refused:
            raise UserError(_FLAG, given=given, expected=expected, fix="change the sweep, or run it by one driver")


def found_whole(where: PlaceName, shard: Shard, spec: Sweep, code: UserCode | None) -> SweepDirectory | None:
    """The sweep of shards in a directory, as its first driver has recorded it; `None` if there is none yet.

    Raises:
        UserError: If the directory holds another sweep, or this one divided otherwise.
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
            given=f"{shard} for {whole.place}, a sweep of {divided}",
            expected="the number of shards that its first driver was given",
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
    """Makes the directory of a shard; that of the sweep too, where no other driver has made it.

    Args:
        where: The sweep's directory.
        shard: The shard.
        spec, code, environment: What this driver would run.
        create: Makes a directory, from its place, the number of shards of a whole sweep and the shard.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while (whole := found_whole(where, shard, spec, code)) is None:
        try:
            create(where, shard.count, None)
        except UserError:
            # Another driver may be writing it. What else is wrong with the directory stays so.
            if not SweepDirectory.is_there(where) and time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)
    if whole.engine != environment.engine:
        raise UserError(
            "--engine",
            given=f"{environment.engine}, while another driver has begun the sweep with {whole.engine}",
            expected=f"{whole.engine}, in all shards",
            fix="repeat the command",
        )
    if changes := whole.changes(environment):
        raise UserError(
            str(whole.place),
            given="; ".join(changes),
            expected="the versions and code of the driver that has begun the sweep",
            fix="install the same environment here",
        )
    return create(whole.place.inside(shard.folder), 0, shard)


def refuse_whole(found: SweepDirectory) -> None:
    """Refuses to run a sweep of shards as one driver's.

    Raises:
        UserError: If it is one.
    """
    if found.shards:
        raise UserError(
            "--dir",
            given=f"{found.place}, a sweep of {found.shards} shards",
            expected=f"which of them to run, with {_FLAG}",
            fix=f"add {_FLAG} I/{found.shards}; or continue all that have begun: attnsweep resume"
            f" {as_argument(found.place)}",
        )


def refuse_extension(found: SweepDirectory) -> None:
    """Refuses to add trials or replicates to one shard of a sweep, or to its shards one after the other.

    Raises:
        UserError: If the sweep has shards.
    """
    if found.shards or found.shard:
        raise UserError(
            "--trials, --replicates",
            given=f"{found.place}, a sweep of several drivers",
            expected="a sweep of one driver: the record of such a sweep is shared, and stays as it began",
            fix="run a new sweep with another --seed, and read the two together: open_sweep(A, B)",
        )


def home_of(where: PlaceName, shard: Shard | None) -> PlaceName:
    """The directory that a driver writes to."""
    return where if shard is None else place_of(where, "--dir").inside(shard.folder)


def resume_shards(
    whole: SweepDirectory, resume: Callable[[PlaceName], Summary], console: Console, *, everything: bool
) -> Summary:
    """Continues the shards of a sweep that have begun, one after the other, and summarizes the whole sweep.

    A shard that another process works on is left to it.

    Args:
        whole: The sweep.
        resume: Continues one.
        console: Told which.
        everything: Whether those that are finished are resumed too.
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
    found = SweepDirectory.open(whole.place)
    if words := found.shortfall:
        console.print(words, markup=False, soft_wrap=True)
    return summarize(
        found,
        refused=refused,
        finished=found.finished,
        seconds=time.monotonic() - began,
        n_before=n_before,
        replays=earlier_replays(found),
    )
