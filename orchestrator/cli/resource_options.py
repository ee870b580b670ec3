"""Options of `run` and `resume` that say what to train on. Light to import."""

import re
from enum import StrEnum
from typing import Annotated

import typer

from attnsweep.workloads.errors import UserError


class Device(StrEnum):
    """What to train on."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Engine(StrEnum):
    """What takes the steps of trainings."""

    auto = "auto"
    blocks = "blocks"
    merged = "merged"
    vmapped = "vmapped"


Address = Annotated[str | None, typer.Option(help="A running Ray cluster: auto, HOST:PORT or ray://HOST:PORT.")]
Local = Annotated[bool, typer.Option("--local", help="Train in this process, without Ray; the rows are the same.")]
Trainers = Annotated[
    str | None,
    typer.Option(
        metavar="N|MIN..MAX",
        help="Number of trainers; default: one per GPU, and one per core on machines without a GPU.",
    ),
]
WaitNodes = Annotated[int, typer.Option(min=0, help="Begin when the cluster has this many nodes.")]
OnDevice = Annotated[Device, typer.Option(help="What to train on; auto: GPUs on machines that have some, else cores.")]
Priority = Annotated[
    int, typer.Option(help="Sweeps of lower priority on the same cluster give their cores to this one.")
]
ByEngine = Annotated[
    Engine,
    typer.Option(help="auto: on CPUs compiled blocks for a long sweep, else vmapped; merged: compiled for GPUs."),
]
PackSize = Annotated[
    int | None, typer.Option(min=1, help="Trainings fused into one program; default: tuned for speed.")
]
MaxFailures = Annotated[int | None, typer.Option(min=0, help="Stop the run when more trainings than this have failed.")]


def parse_more(text: str | None, option: str, what: str) -> int:
    """How many trials or replicates `resume` adds.

    Raises:
        UserError: If the text is not +N.
    """
    if text is None:
        return 0
    if not re.fullmatch(r"\+[1-9][0-9]{0,8}", text):
        raise UserError(option, given=text, expected=f"+N, the {what} to add", fix=f"for example {option} +8")
    return int(text)


def parse_trainers(text: str | None) -> int | tuple[int, int] | None:
    """The number of trainers, or the least and the most.

    Raises:
        UserError: If the text is neither.
    """
    if text is None:
        return None
    least, dots, most = text.partition("..")
    try:
        found = int(least), int(most if dots else least)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1]:
        raise UserError(
            "--trainers", given=text, expected="N or MIN..MAX, from 1 on", fix="for example --trainers 2..8"
        )
    return found if dots else found[0]
