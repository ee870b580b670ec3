"""How a run derives the sweep to train from the user's input and the sweep's record.

The record is checked before the run starts, and again once the run holds the lock and nothing else can change it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.inspection.kept_weights import find_base
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.running.study_storage import check_storage
from attnsweep.orchestrator.storage.credentials import refuse_credentials
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument
from attnsweep.orchestrator.storage.stored_code import named_by_file_alone
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.sweep_record import Extension
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.base_names import NamedBase
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import UserCode, user_code_of, users_code

Entry = Callable[[SweepDirectory], SweepDirectory]
"""Maps a sweep as recorded to the sweep that the run continues. Raises UserError to refuse it; writes nothing."""


def going_on(
    workload: Workload[Any],
    environment: Environment,
    more: Callable[[SweepDirectory], Extension] = lambda _: Extension(),
    *,
    accept_drift: bool = False,
) -> Entry:
    """Returns a function that derives the sweep to train from the stored record, with the run's environment and the
    trials and replicates that it adds.

    Args:
        workload: The sweep's workload.
        environment: The environment in which the run trains.
        more: Returns the trials and replicates that the run adds to the sweep as recorded.
        accept_drift: Whether the run may train in an environment that differs from the sweep's latest.
    """

    def enter(directory: SweepDirectory) -> SweepDirectory:
        entered = directory.entering(environment).extended(more(directory))
        check_sweep(entered.spec, workload.parameters, workload.outcomes)
        if not accept_drift:
            _check_drift(directory, environment)
        return entered

    return enter


def as_it_ended(directory: SweepDirectory) -> SweepDirectory:
    """Returns the recorded sweep unchanged if it is finished, for a run that only summarizes it; raises an error
    otherwise."""
    if not directory.finished:
        raise UserError(
            str(directory.place),
            given="a sweep that another process has just extended",
            expected="a finished sweep",
            fix="repeat the command",
        )
    return directory


def _check_drift(directory: SweepDirectory, environment: Environment) -> None:
    if changes := directory.changes(environment):
        differences = "; ".join(changes)
        raise UserError(
            str(directory.place),
            given=differences,
            expected="the library versions and code that the sweep was trained with so far",
            fix=f"restore these versions and code, or continue with attnsweep resume {as_argument(directory.place)}"
            " --accept-drift: "
            "the column `environment` then tells the rows apart",
        )


def pinned(workload: Workload[Any], spec: Sweep) -> dict[str, Value]:
    """Returns the values that the workload records for the files that a spec names, such as the files' digests.

    Raises:
        UserError: If a file is missing or differs from the record, or if the workload's own code fails.
    """
    with users_code(f"{spec.workload}: pinned", "values to record, by name", "correct it, or leave it out"):
        return dict(workload.parameters.pinned(spec.fixed()))


def resolved(
    spec: Sweep, workload: Workload[Any], known_bases: Mapping[str, str] = MappingProxyType({})
) -> tuple[Sweep, NamedBase | None]:
    """Returns the spec in the form in which a sweep stores it, checked against its workload, and the weights that
    trainings start from.

    Args:
        spec: The spec that the user gave.
        workload: The workload of the spec.
        known_bases: The bases that the sweep directory has stored: what the user gave, by the name of the base.
    """
    base = find_base(workload, spec.fixed(), known_bases)
    if base is not None:
        spec = spec.fix({workload.parameters.base_field: base.name})
    spec = spec.fix(pinned(workload, spec))
    check_sweep(spec, workload.parameters, workload.outcomes)
    refuse_credentials(spec)
    check_storage(spec)
    code = user_code_of(workload)
    return (spec if code is None else named_by_file_alone(spec, code)), base


def check_same(spec: Sweep, code: UserCode | None, directory: SweepDirectory) -> None:
    """Raises an error if the directory's sweep has another spec, or other user code. Descriptions may differ."""
    place = directory.place
    if spec.but(description=directory.spec.description).sha256() != directory.spec_sha256:
        raise UserError(
            "--dir",
            given=f"the directory {place}, which contains another sweep: {directory.spec.name}, with the spec hash"
            f" {directory.spec_sha256[:12]}",
            expected=f"a new directory, or one with this sweep: {spec.name}, with the spec hash {spec.sha256()[:12]}",
            fix=f"choose another --dir; to continue the other sweep: attnsweep resume {as_argument(place)}",
        )
    if dict(directory.code) != (code.sha256 if code else {}):
        code_files = ", ".join(directory.code)
        raise UserError(
            "--dir",
            given=f"the directory {place}, which contains this sweep with other code in the files {code_files}",
            expected="a new directory, or one with this sweep and the same code",
            fix=f"choose another --dir; to continue with the stored code: attnsweep resume {as_argument(place)}",
        )


def check_rows(directory: SweepDirectory, study: Study, rows: pa.Table) -> None:
    """Raises an error for rows of another sweep, or of trials that the study does not know: such trials would be
    trained twice."""
    place = directory.place
    if others := sorted({*rows["sweep"].unique().to_pylist()} - {directory.sweep}):
        other_sweeps = ", ".join(others)
        raise UserError(
            f"{place}/trainings",
            given=f"trainings of another sweep: {other_sweeps}",
            expected=f"only trainings of the sweep that sweep.json describes, {directory.sweep}",
            fix="remove the files that were copied into the directory, or restore sweep.json; to see what is wrong:"
            f" attnsweep audit {as_argument(place)}",
        )
    study.check_known(rows["trial"].unique().to_pylist())


def check_retry(spec: Sweep) -> None:
    """Refuses `--retry-failed` if the number of replicates follows a rule, because the rule has already counted the
    failed trainings."""
    if not isinstance(spec.replicates, int):
        raise UserError(
            "--retry-failed",
            given=f"a sweep in which a rule decides how many replicates a trial gets: {spec.replicates}",
            expected="a sweep with a fixed number of replicates, because a rule has already counted the failed"
            " trainings",
            fix="run a new sweep, or leave out --retry-failed",
        )


def check_same_start(directory: SweepDirectory, warm_starts: Sequence[PlaceName]) -> None:
    """Refuses `--warm-start` for a sweep that has begun without it."""
    if warm_starts and not directory.warm_start:
        raise UserError(
            "--warm-start",
            given=f"--warm-start for {directory.place}, a sweep that began without --warm-start",
            expected="a new sweep, because a sampler learns from other sweeps' trials only before its first draw",
            fix="choose another --dir, or leave out --warm-start",
        )
