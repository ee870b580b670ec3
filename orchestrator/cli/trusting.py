"""The option `--trust` of commands that run user code stored with a sweep."""

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
    """Opens a sweep. With `--trust`, the sweep's user code is trusted from now on, and its files are listed.

    Raises:
        UserError: If there is no sweep, or a stored file is not the one that the sweep recorded.
    """
    from attnsweep.orchestrator.storage.stored_code import code_of, trust_code
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    sweep = SweepDirectory.open(directory)
    if trusted:
        trust_code(code_of(sweep), say)
    return sweep


def code_for(reference: str, sweep: "Sweep", *, trusted: bool) -> "UserCode | None":
    """Returns the user code that belongs to a sweep in a JSON file; `None` for other sweeps, whose code runs when they
    are loaded.

    Weights of other sweeps that a stored sweep starts from are loaded from its directory.

    Raises:
        UserError: If the code is not trusted, or a stored file is not the one that the sweep recorded.
    """
    if not reference.endswith(".json"):
        return None
    from attnsweep.orchestrator.storage.stored_code import check_trusted, code_of_json, offer_bases, trust_code
    from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory

    path = Path(reference)
    if path.name == SWEEP_FILE:
        offer_bases(SweepDirectory.open(path.parent))
    code = code_of_json(path, sweep)
    if trusted:
        trust_code(code, say)
    check_trusted(code, reference)
    return code
