"""Options of commands that run sweeps: `--shard`, and resources."""

import re
from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, get_annotations, signature
from typing import Annotated, Any, Literal, TypeAlias

from typer import Option

from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.training.resources import Device, Resources
from attnsweep.workloads.errors import UserError

Engine: TypeAlias = Literal["auto", "compiled", "eager"]
OfShard = Annotated[
    str,
    Option(
        "--shard",
        rich_help_panel="Where",
        metavar="I/N",
        help="Be driver I (0..N-1) of N, with the trials I, I+N, ... of the sweep, in a --dir of its own.",
    ),
]
_option = partial(Option, rich_help_panel="Resources")
_OPTIONS: dict[str, tuple[Any, object]] = {
    "address": (
        Annotated[str | None, _option(help="A running Ray cluster: auto, HOST:PORT or ray://HOST:PORT.")],
        None,
    ),
    "local": (
        Annotated[
            bool, _option("--local", metavar="", help="Train in this process, without Ray; trainings end the same.")
        ],
        False,
    ),
    "trainers": (
        Annotated[
            str | None,
            _option(metavar="N|MIN..MAX", help="Number of trainers; default: one per GPU, else one per core."),
        ],
        None,
    ),
    "n_nodes": (
        Annotated[int, _option("--wait-nodes", min=0, help="Begin when the cluster has this many nodes.")],
        0,
    ),
    "device": (
        Annotated[Device, _option(help="What to train on; auto: GPUs on machines that have some, else cores.")],
        "auto",
    ),
    "engine": (
        Annotated[Engine, _option(help="On CPUs; auto: compiled where that pays; eager: operation by operation.")],
        "auto",
    ),
    "pack_size": (
        Annotated[int | None, _option(min=1, help="Trainings fused into one program; default: tuned for speed.")],
        None,
    ),
    "max_failures": (
        Annotated[int | None, _option(min=0, help="Stop the run when more trainings than this have failed.")],
        None,
    ),
}
"""The type and default of each option, by its name in `Resources`, where `trainers` is `n_trainers`."""


def with_resources(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces a command's parameter `resources` by `_OPTIONS`, except those named in `without`."""
    options = {name: option for name, option in _OPTIONS.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(**arguments: Any) -> None:
            values = {name: arguments.pop(name) for name in options}
            command(**arguments, resources=Resources(n_trainers=parse_trainers(values.pop("trainers")), **values))

        parameters: list[Parameter] = []
        for each in signature(command).parameters.values():
            of_resources = [
                Parameter(name, each.kind, default=default, annotation=kind)
                for name, (kind, default) in options.items()
            ]
            parameters += of_resources if each.name == "resources" else [each]
        annotations = {name: kind for name, kind in get_annotations(command).items() if name != "resources"}
        with_options.__annotations__ = annotations | {name: kind for name, (kind, _) in options.items()}
        with_options.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


def parse_more(text: str | None, option: str, what: str) -> int:
    """N for `+N`, 0 without text."""
    if text is None:
        return 0
    if not re.fullmatch(r"\+[1-9][0-9]{0,8}", text):
        raise UserError(option, given=text, expected=f"+N, to add N {what}", fix=f"write for example {option} +8")
    return int(text)


def parse_trainers(text: str | None) -> int | tuple[int, int] | None:
    """N or MIN..MAX; `None` stays `None`."""
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        bounds = int(low), int(high if dots else low)
    except ValueError:
        bounds = 0, 0
    if not 1 <= bounds[0] <= bounds[1]:
        expected = "N or MIN..MAX, whole numbers from 1 on"
        raise UserError("--trainers", given=text, expected=expected, fix="write for example --trainers 2..8")
    return bounds if dots else bounds[0]


def parse_shard(text: str) -> Shard:
    """Raises UserError if there is no such driver."""
    index, _, count = text.partition("/")
    if not (re.fullmatch(r"\d{1,9}", index) and re.fullmatch(r"\d{1,9}", count) and int(index) < int(count)):
        fix = "write for example --shard 0/4 for the first of four drivers"
        raise UserError("--shard", given=text, expected="I/N: driver I from 0 to N - 1 of N drivers", fix=fix)
    return Shard(int(index), int(count))
