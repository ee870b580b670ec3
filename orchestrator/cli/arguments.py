"""Arguments that several commands take, and a check of all arguments."""

from collections.abc import Sequence
from typing import Annotated

import typer

from attnsweep.workloads.errors import UserError

SweepDir = Annotated[str, typer.Argument(metavar="DIR", help="A sweep directory, or s3://BUCKET/PREFIX.")]
SweepDirs = Annotated[list[str], typer.Argument(metavar="DIR...", help="One sweep directory or several.")]
TrainingId = Annotated[
    str, typer.Argument(metavar="TRAINING_ID", help="A training_id or its beginning, or TRIAL/REPLICATE, such as 12/3.")
]
TrackingUri = Annotated[
    str | None, typer.Option(help="MLflow store; default: MLFLOW_TRACKING_URI, or sqlite:///sweeps/mlflow.db.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def check_texts(arguments: Sequence[str]) -> None:
    """Raises an error for arguments that are not UTF-8 or contain NUL: files, records and queries cannot hold such
    text.

    Raises:
        UserError: For the first such argument.
    """
    for argument in arguments:
        if "\0" in argument or (not argument.isascii() and any("\ud800" <= sign <= "\udfff" for sign in argument)):
            raise UserError(
                "argument",
                given=argument,
                expected="UTF-8 text without NUL",
                fix="correct the argument, or rename the file that it names",
            )
