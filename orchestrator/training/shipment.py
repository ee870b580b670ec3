"""A workload on its way to a trainer in another process, with the user's code and files that only the driver has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.files import given_file, take_over
from attnsweep.workloads.user_code import UserCode, user_code_of


class Shipment:
    """A workload as it is sent.

    The code travels as text, and the receiver imports it under the module's name that it has here. So whatever is
    pickled later (parameters, errors) names its class, as for an installed workload.

    Args:
        workload: The problem.
        files: What its trainings read, as `given_file` finds it: absolute paths, and names of bases.
    """

    def __init__(self, workload: Workload[Any], files: Sequence[str] = ()) -> None:
        self.workload = workload
        self._files = files

    def __reduce__(self) -> tuple[object, ...]:
        files = {
            path: given_file(Path(path), "files", "a file that trainings read").read_bytes() for path in self._files
        }
        # The workload is the state, because that is unpickled after the code has been offered.
        return _unloaded, (user_code_of(self.workload), files), self.workload

    def __setstate__(self, workload: Workload[Any]) -> None:
        self.workload = workload


def _unloaded(code: UserCode | None, files: Mapping[str, bytes]) -> Shipment:
    if code is not None:
        code.offer()
    take_over(files)
    return Shipment.__new__(Shipment)
