"""The predicted cost of a sweep from `attnsweep forecast`: kept for this user on this machine, then with the sweep."""

import hashlib
import json
import platform
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.record import Record, RecordFile
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.user_state import state_folder
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError


class Promise(Record):
    """The cost that a forecast predicts for a sweep.

    Attributes:
        seconds: Seconds of training on one core or GPU of this machine: the predicted sum of `train_seconds`.
        seconds_low, seconds_high: The range of `seconds`.
        is_bound: Whether `seconds` is an upper bound, because trainings may end sooner than it assumes.
        n_rows: Rows of all tables.
        n_bytes: Size of all tables on disk.
    """

    seconds: float = Field(ge=0, allow_inf_nan=False)
    seconds_low: float = Field(ge=0, allow_inf_nan=False)
    seconds_high: float = Field(ge=0, allow_inf_nan=False)
    is_bound: bool
    n_rows: int = Field(ge=0)
    n_bytes: int = Field(ge=0)


PROMISE = RecordFile("promise.json", Promise, "remove it: no result depends on a forecast's promise")


def remember_promise(spec: Sweep, environment: str, promise: Promise) -> None:
    """Stores the predicted cost of a sweep for this user, in place of an earlier prediction. A failure is ignored.

    Args:
        spec: The sweep, as a sweep directory would store it.
        environment: The id of the environment that would train it.
        promise: The predicted cost.
    """
    with suppress(OSError, RuntimeError, StoreError, UserError):
        folder = _of_user(spec, environment)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        PROMISE.write_passing(LocalFolder(folder), promise)


def take_promise(directory: SweepDirectory) -> None:
    """Copies the user's predicted cost of a new sweep, if there is one, to the sweep's directory. A failure is
    ignored."""
    with suppress(OSError, RuntimeError, StoreError, UserError):
        promise = PROMISE.read_if_sound(LocalFolder(_of_user(directory.spec, directory.environment or "")))
        if promise is not None:
            PROMISE.write_passing(directory.place, promise)


def promise_of(directory: SweepDirectory) -> Promise | None:
    """Returns the predicted cost of a sweep; `None` if there is none, it cannot be read, or trials have been added
    since."""
    return None if directory.is_extended else PROMISE.read_if_sound(directory.place)


def _of_user(spec: Sweep, environment: str) -> Path:
    """Returns the folder of a sweep's predicted cost. The folder does not depend on the seed, because the cost does
    not."""
    key = [spec.but(seed=0).sha256(), environment, platform.node()]
    return state_folder() / "promises" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
