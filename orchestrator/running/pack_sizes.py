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

from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.record import Record, RecordFile
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.user_state import state_folder
from attnsweep.orchestrator.training.tasks import Shape
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.workloads.engine.device_memory import MemoryOfPacks, PackMemory

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

    def sizer(self, accelerator: str, shape: Shape) -> "PackSizer":
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
            if (measured := sizer.found) is not None:
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


class PackSizer:
    """Finds the pack size that trains one shape fastest: doubles it while that trains more steps per second.

    On a GPU, where a pack of 512 takes hardly longer than one of 64, it grows eightfold. The peaks of packs predict the
    largest one that fits; one that did not fit is halved.

    Args:
        fixed: The size to use throughout; `None` finds one.
        measured: What an earlier run found.
        slack: By how much a pack may be smaller than wanted and still be measured: packs of whole trials are.
    """

    smallest, largest = 64, 4096
    _worth_it = 1.05
    _last_may_be = 1.5
    _growth_on_gpu = 8

    def __init__(self, fixed: int | None, measured: Measured | None = None, slack: int = 0) -> None:
        self._fixed, self._slack = fixed, slack
        self._rates: dict[int, float] = {} if measured is None else dict(measured.rates)
        self._limit = fixed or (self.largest if measured is None else measured.limit)
        self._peaks: dict[int, int] = {}
        self._fitting = self._limit

    @property
    def found(self) -> Measured | None:
        """What was measured so far; `None` if nothing was."""
        if not self._rates and self._limit == self.largest:
            return None
        return Measured(rates=dict(self._rates), limit=self._limit)

    def size(self, fair_share: int) -> int:
        """The size of the next pack.

        Args:
            fair_share: Trainings left for each trainer: with a larger pack another trainer would have no work.
        """
        if self._fixed is not None:
            return self._limit
        wanted = self._wanted()
        # A few trainings left over join the last pack: a small pack costs nearly as much as a full one.
        is_last = fair_share <= min(self._last_may_be * wanted, self._most)
        return max(fair_share if is_last else wanted, 1)

    def measured(self, n_lanes: int, lane_steps_per_second: float, memory: PackMemory | None = None) -> None:
        """Learns from the speed of a trained pack, if the pack had the wanted size.

        Args:
            n_lanes: Of the pack.
            lane_steps_per_second: At which it trained.
            memory: What it took of a GPU's memory.
        """
        if memory is not None:
            self._limit_to(memory)
        if not self._wanted() - self._slack <= n_lanes <= self._wanted():
            return
        n_lanes = self._wanted()
        smaller = max((rate for size, rate in self._rates.items() if size < n_lanes), default=0.0)
        # A size that gains too little counts as no better, so that the search ends there.
        gains = lane_steps_per_second > self._worth_it * smaller
        self._rates[n_lanes] = lane_steps_per_second if gains else min(lane_steps_per_second, smaller)

    def out_of_memory(self, n_lanes: int) -> None:
        """Never makes a pack of this size again."""
        self._limit = min(self._limit, max(n_lanes // 2, 1))

    def _limit_to(self, memory: PackMemory) -> None:
        """Makes no pack that would not fit."""
        self._peaks[memory.width] = memory.peak
        narrow, wide = min(self._peaks), max(self._peaks)
        # Of a single width all could grow with the lanes.
        least = (narrow, self._peaks[narrow]) if narrow < wide else (0, 0)
        most = MemoryOfPacks.of(least, (wide, self._peaks[wide])).most_lanes(memory.free)
        # A pack is as wide as a power of two. What has fitted fits.
        self._fitting = max(1 << (most.bit_length() - 1), wide)

    @property
    def _most(self) -> int:
        return min(self._limit, self._fitting)

    def _wanted(self) -> int:
        if not self._rates:
            return min(self.smallest, self._most)
        best = max(self._rates, key=lambda size: self._rates[size])
        growth = self._growth_on_gpu if self._peaks else 2
        larger = min(best * growth, self._most)
        return larger if best == max(self._rates) and larger >= 2 * best else min(best, self._most)
