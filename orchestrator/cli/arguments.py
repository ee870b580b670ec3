"""Arguments that several commands take, their checks, and the sweeps and user code that they name."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from attnsweep.orchestrator.cli.answers import say
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.search_spaces.sweep import Sweep
    from attnsweep.workloads.user_code import UserCode

SweepDir = Annotated[str, Argument(metavar="DIR", help="A sweep directory, or s3://BUCKET/PREFIX.")]
SweepDirs = Annotated[list[str], Argument(metavar="DIR...", help="One sweep directory or several.")]
TrainingId = Annotated[
    str, Argument(metavar="TRAINING_ID", help="A training_id or its beginning, or TRIAL/REPLICATE, such as 12/3.")
]
TrackingUri = Annotated[
    str | None, Option(help="MLflow store; default: MLFLOW_TRACKING_URI, or sqlite:///sweeps/mlflow.db.")
]
AsJson = Annotated[bool, Option("--json", metavar="", help="Print one JSON object on stdout.")]


def check_texts(arguments: Sequence[str]) -> None:
    """Raises UserError for text that is not UTF-8 or contains NUL: files, records and queries cannot hold it."""
    for argument in arguments:
        if "\0" in argument or (not argument.isascii() and any("\ud800" <= sign <= "\udfff" for sign in argument)):
            fix = "correct the argument, or rename the file that the argument names"
            raise UserError("argument", given=argument, expected="UTF-8 text without NUL characters", fix=fix)


def opened(directory: str) -> "SweepDirectory":
    """Opens a sweep whose code will run, and says so on stderr."""
    from attnsweep.orchestrator.storage.copies import name_of
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    sweep = SweepDirectory.open(directory)
    if code := sweep.code:
        _say_whose(name_of(sweep.place), code)
    return sweep


def code_for(reference: str, sweep: "Sweep") -> "UserCode | None":
    """The user's code, if the user named the sweep by a JSON file."""
    if not reference.endswith(".json"):
        return None
    from attnsweep.orchestrator.storage.stored_code import code_of_json

    if code := code_of_json(Path(reference), sweep):
        _say_whose(code.folder, code.texts)
    return code


def _say_whose(place: str, files: Iterable[str]) -> None:
    say(f"runs the code stored in {place}: {', '.join(files)}")
