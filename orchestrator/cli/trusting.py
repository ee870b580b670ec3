"""The option `--trust` of the commands that run the code of a sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnsweep.orchestrator.cli.answers import say

if TYPE_CHECKING:
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.sweep import Sweep
    from attnsweep.workloads.user_code import UserCode

Trust = Annotated[
    bool, typer.Option("--trust", help="List the user code that is stored with the sweep, trust it, and run it.")
]


def opened(directory: str, *, trusted: bool) -> "SweepDirectory":
    """Opens a sweep. With `--trust`, its code is trusted from now on, and its files are listed.

    Raises:
        UserError: If there is no sweep, or a stored file is not the one that the sweep recorded.
    """
    from attnsweep.orchestrator.storage.stored_code import code_of, trust_code
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    found = SweepDirectory.open(directory)
    if trusted:
        trust_code(code_of(found), say)
    return found


def code_for(reference: str, sweep: "Sweep", *, trusted: bool) -> "UserCode | None":
    """The user's code of a sweep in a JSON file; `None` for a sweep in a Python file, which is run with its workload.

    The weights that a stored sweep starts from are found in its directory.

    Raises:
        UserError: If the code is not trusted, or a stored file is not the one that the sweep recorded.
    """
    if not reference.endswith(".json"):
        return None
    from attnsweep.orchestrator.storage.stored_bases import offer_bases
    from attnsweep.orchestrator.storage.stored_code import check_trusted, code_of_json, trust_code
    from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory

    path = Path(reference)
    if path.name == SWEEP_FILE:
        offer_bases(SweepDirectory.open(path.parent))
    code = code_of_json(path, sweep)
    if trusted:
        trust_code(code, say)
    check_trusted(code, reference)
    return code
