"""How many trainings make a pack: found by measurement, for each shape and type of accelerator, and kept in the sweep.

A sweep begins with the sizes that this user's last sweep of the workload found on such a machine. No row depends on
them but by the columns that name its pack.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import Field

from attnsweep.orchestrator.running.pack_sizer import PackSizer
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
"""That a run trains before later sweeps begin with its sizes. In a shorter one starting a pack is most of its time."""
_Size = Annotated[int, Field(ge=1)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Measured(Record):
    """What is known of one shape on one type of accelerator.

    Attributes:
        rates: By pack size, training steps per second; of a size that gained too little, the rate of a smaller one.
        limit: No pack is larger.
    """

    rates: Mapping[_Size, _Rate]
    limit: _Size

    def without_limit(self) -> "Measured":
        """The same for a machine whose memory is not known to be short."""
        return self.model_copy(update={"limit": max(PackSizer.largest, *self.rates)})


class _Kept(Record):
    """The file: by the type of accelerator, by the shape as JSON."""

    sizes: Mapping[str, Mapping[str, Measured]]


_KEPT = RecordFile("pack_sizes.json", _Kept, "remove it: no result depends on it")


_Sizes: TypeAlias = Mapping[str, Mapping[str, Measured]]


def sizes_of_user(workload: str, engine: Engine) -> Path | None:
    """The folder with the sizes that this user's sweeps of a workload found on machines like this one.

    `None` where the user has no home.
    """
    kind = [workload, engine, platform.machine(), _processor()]
    with suppress(RuntimeError):
        return state_folder() / "pack_sizes" / hashlib.sha256(json.dumps(kind).encode()).hexdigest()[:16]
    return None


def _processor() -> str:
    """The processor's model, where Linux names it."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return ""


class PackSizes:
    """The sizers of a sweep. They begin with what its earlier runs have measured, or else other sweeps of the user.

    Args:
        fixed: The size to use throughout; `None` finds one, and keeps what it finds.
        place: The sweep.
        of_user: From `sizes_of_user`; `None` if it must not depend on other sweeps.
        slack: As `PackSizer` takes it.
    """

    def __init__(self, fixed: int | None, place: Place, of_user: Path | None = None, slack: int = 0) -> None:
        self._fixed, self._place, self._of_user, self._slack = fixed, place, of_user, slack
        self._kept = {} if fixed else _read(place)
        self._of_others = {} if fixed or of_user is None else _read(LocalFolder(of_user))
        self._sizers: dict[tuple[str, Shape], PackSizer] = {}
        self._n_lane_steps = 0

    @classmethod
    def of_sweep(cls, fixed: int | None, directory: SweepDirectory, *, learns: bool) -> Self:
        """Those of a sweep whose sampler learns from results, or does not."""
        spec = directory.spec
        # What is drawn next must not depend on other sweeps; and pruning wants other sizes.
        is_apart = learns or spec.pruner is not None
        of_user = None if is_apart else sizes_of_user(spec.workload, directory.engine)
        slack = 0 if spec.pruner is None else n_wanted(spec.replicates, {}) - 1
        return cls(fixed, directory.place, of_user, slack)

    def sizer(self, accelerator: str, shape: Shape) -> PackSizer:
        """The sizer of packs of a shape on a type of accelerator."""
        found = self._sizers.get((accelerator, shape))
        if found is None:
            known = (sizes.get(accelerator, {}).get(json.dumps(shape)) for sizes in (self._kept, self._of_others))
            found = PackSizer(self._fixed, next((each for each in known if each is not None), None), self._slack)
            self._sizers[accelerator, shape] = found
        return found

    def trained(self, lane_steps: int) -> None:
        """Counts what was trained."""
        self._n_lane_steps += lane_steps

    def save(self) -> None:
        """Writes what was found since, if any size is new. A failure to write it never stops a sweep."""
        if self._fixed:
            return
        found = self._with_found(self._kept)
        if _sizes_in(found) != _sizes_in(self._kept):
            self._kept = found
            _KEPT.write_passing(self._place, _Kept(sizes=found))

    def save_for_user(self) -> None:
        """Writes what was found for this user's later sweeps, if this run has trained for long enough to know.

        Limits are left out: memory may be free by then.
        """
        if self._fixed or self._of_user is None or self._n_lane_steps < _FEWEST_LANE_STEPS:
            return
        with suppress(OSError, StoreError):
            self._of_user.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = LocalFolder(self._of_user)
            found = self._with_found(_read(place))
            for by_shape in found.values():
                by_shape.update({shape: each.without_limit() for shape, each in by_shape.items() if each.rates})
            _KEPT.write_passing(place, _Kept(sizes=found))

    def _with_found(self, kept: _Sizes) -> dict[str, dict[str, Measured]]:
        found = {accelerator: dict(by_shape) for accelerator, by_shape in kept.items()}
        for (accelerator, shape), sizer in self._sizers.items():
            if sizer.has_found:
                measured = Measured(rates=dict(sizer.rates), limit=sizer.limit)
                found.setdefault(accelerator, {})[json.dumps(shape)] = measured
        return found


def _read(place: Place) -> _Sizes:
    """What earlier runs have found; nothing where that cannot be read."""
    kept = _KEPT.read_if_sound(place)
    return kept.sizes if kept else {}


def _sizes_in(kept: _Sizes) -> object:
    """All but the rates, which change with every pack."""
    return {
        (accelerator, shape): (sorted(measured.rates), measured.limit)
        for accelerator, by_shape in kept.items()
        for shape, measured in by_shape.items()
    }
