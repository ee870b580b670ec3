"""Finds and stores the fastest pack size (number of trainings in one batched program), for each shape (equal static
parameters) and type of accelerator.

A sweep begins with the sizes that this user's last sweep of the same workload found on a machine of the same type. The
sizes affect only those columns of the results that describe the pack.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import Field

from attnsweep.orchestrator.running.plan import PackSizer
from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.record import Record, RecordFile
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.user_state import state_folder
from attnsweep.orchestrator.training.tasks import Shape
from attnsweep.search_spaces.replication import n_wanted

_FEWEST_LANE_STEPS = 1_000_000
"""Training steps, summed over trainings, after which a run's pack sizes are stored for later sweeps. A shorter run
spends most of its time on starting packs."""
_Size = Annotated[int, Field(ge=1)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Measured(Record):
    """The stored measurements of pack sizes for one shape (equal static parameters) on one type of accelerator: the
    speed at each size, and the largest possible size."""

    rates: Mapping[_Size, _Rate]
    limit: _Size


_Sizes: TypeAlias = Mapping[str, Mapping[str, _Measured]]
"""Measurements by type of accelerator, then by shape (as JSON)."""


class _Kept(Record):
    """The content of `pack_sizes.json`: the measured speeds of packs of trainings, by number of trainings."""

    sizes: _Sizes


_KEPT = RecordFile("pack_sizes.json", _Kept, "remove it: no result depends on it")


def sizes_of_user(workload: str, engine: Engine) -> Path | None:
    """Returns the folder with the pack sizes (trainings per batched program) that this user's earlier sweeps found for
    the same workload, engine and processor; `None` if the user has no home folder."""
    processor = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    kind = json.dumps([workload, engine, platform.machine(), processor])
    with suppress(RuntimeError):
        return state_folder() / "pack_sizes" / hashlib.sha256(kind.encode()).hexdigest()[:16]
    return None


class PackSizes:
    """Searches for a sweep's fastest pack sizes: how many trainings to put into one batched program. There is a
    separate search (a `PackSizer`) for each type of accelerator and each set of values of the parameters that must be
    equal within a program.

    A search starts from the sweep's earlier measurements or, without any, from those of the user's other sweeps.

    Args:
        fixed: The size of all packs; `None` searches for one and stores it.
        place: The sweep.
        of_user: The folder from `sizes_of_user`; `None` if the sizes must not depend on other sweeps.
        slack: As in `PackSizer`.
    """

    def __init__(self, fixed: int | None, place: Place, of_user: Path | None = None, slack: int = 0) -> None:
        self._fixed, self._place, self._of_user, self._slack = fixed, place, of_user, slack
        self._kept = {} if fixed else _read(place)
        self._of_others = {} if fixed or of_user is None else _read(LocalFolder(of_user))
        self._sizers: dict[tuple[str, Shape], PackSizer] = {}
        self._n_lane_steps = 0

    @classmethod
    def of_sweep(cls, fixed: int | None, directory: SweepDirectory) -> Self:
        """Makes the `PackSizes` of a sweep. They start from the sizes that other sweeps found, unless the sweep has a
        pruner, which needs other sizes."""
        spec = directory.spec
        of_user = sizes_of_user(spec.workload, directory.engine) if spec.pruner is None else None
        slack = 0 if spec.pruner is None else n_wanted(spec.replicates, {}) - 1
        return cls(fixed, directory.place, of_user, slack)

    def sizer(self, accelerator: str, shape: Shape) -> PackSizer:
        """Returns the object that searches the fastest number of trainings per batched program. There is one search for
        each type of accelerator and each set of static parameters, which fix the tensors' shapes.
        """
        sizer = self._sizers.get((accelerator, shape))
        if sizer is None:
            earlier = (sizes.get(accelerator, {}).get(json.dumps(shape)) for sizes in (self._kept, self._of_others))
            known = next((measured for measured in earlier if measured is not None), None)
            rates, limit = (known.rates, known.limit) if known else ({}, None)
            sizer = self._sizers[accelerator, shape] = PackSizer(self._fixed, rates, limit, self._slack)
        return sizer

    def trained(self, lane_steps: int) -> None:
        """Adds to the number of training steps that this run of the sweep has taken, summed over its trainings. If a
        run takes too few steps, its pack sizes are not stored by `save_for_user`."""
        self._n_lane_steps += lane_steps

    def save(self) -> None:
        """Writes the measured speeds of packs to the sweep directory, if a new pack size was measured. A failure to
        write is ignored.
        """
        if self._fixed:
            return
        sizes = self._with_measured(self._kept)
        if _without_speeds(sizes) != _without_speeds(self._kept):
            self._kept = sizes
            _KEPT.write_passing(self._place, _Kept(sizes=sizes))

    def save_for_user(self) -> None:
        """Stores the measured pack sizes for the user's later sweeps, unless this run was too short to measure them
        well.

        The largest sizes that fit into memory are left out, because a later sweep may find more free memory.
        """
        if self._fixed or self._of_user is None or self._n_lane_steps < _FEWEST_LANE_STEPS:
            return
        with suppress(OSError, StoreError):
            self._of_user.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = LocalFolder(self._of_user)
            sizes = self._with_measured(_read(place))
            for by_shape in sizes.values():
                for shape, measured in by_shape.items():
                    if measured.rates:
                        limit = max(PackSizer.largest, *measured.rates)
                        by_shape[shape] = measured.model_copy(update={"limit": limit})
            _KEPT.write_passing(place, _Kept(sizes=sizes))

    def _with_measured(self, kept: _Sizes) -> dict[str, dict[str, _Measured]]:
        sizes = {accelerator: dict(by_shape) for accelerator, by_shape in kept.items()}
        for (accelerator, shape), sizer in self._sizers.items():
            if sizer.has_found:
                measured = _Measured(rates=dict(sizer.rates), limit=sizer.limit)
                sizes.setdefault(accelerator, {})[json.dumps(shape)] = measured
        return sizes


def _read(place: Place) -> _Sizes:
    kept = _KEPT.read_if_sound(place)
    return kept.sizes if kept else {}


def _without_speeds(kept: _Sizes) -> object:
    """Returns the pack sizes (numbers of trainings in one batched program) that were measured, and the largest possible
    size, by accelerator and static parameters. Speeds are left out, so comparing two results shows whether sizes
    differ."""
    return {
        (accelerator, shape): (sorted(measured.rates), measured.limit)
        for accelerator, by_shape in kept.items()
        for shape, measured in by_shape.items()
    }
