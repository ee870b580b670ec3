"""Options of commands that run sweeps: `--shard`, and resources, most with a default from an environment variable."""

import re
from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, get_annotations, signature
from typing import Annotated, Any, Literal, TypeAlias

import typer
from typer import Option

from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.training.nodes import Device
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.workloads.errors import UserError

Engine: TypeAlias = Literal["auto", "compiled", "eager"]


def _unless_local(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """Ignores the environment variables of a cluster's options with `--local`."""
    source = context.get_parameter_source(option.name or "")
    if context.params.get("local") and source is not None and source.name == "ENVIRONMENT":
        return option.default
    return value


_option = partial(Option, rich_help_panel="Resources")
_of_cluster = partial(_option, callback=_unless_local)

Address = Annotated[
    str | None,
    _of_cluster(envvar="ATTNSWEEP_ADDRESS", help="A running Ray cluster: auto, HOST:PORT or ray://HOST:PORT."),
]
Local = Annotated[bool, _option("--local", help="Train in this process, without Ray; the rows are the same.")]
Trainers = Annotated[
    str | None,
    _of_cluster(
        envvar="ATTNSWEEP_TRAINERS",
        metavar="N|MIN..MAX",
        help="Number of trainers; default: one per GPU, and one per core on machines without a GPU.",
    ),
]
WaitNodes = Annotated[
    int,
    _of_cluster(
        "--wait-nodes", envvar="ATTNSWEEP_WAIT_NODES", min=0, help="Begin when the cluster has this many nodes."
    ),
]
OnDevice = Annotated[
    Device,
    _option(envvar="ATTNSWEEP_DEVICE", help="What to train on; auto: GPUs on machines that have some, else cores."),
]
ByEngine = Annotated[
    Engine,
    _option(
        envvar="ATTNSWEEP_ENGINE",
        help="auto: compiled where that pays, on CPUs; eager: PyTorch, operation by operation.",
    ),
]
PackSize = Annotated[
    int | None,
    _option(envvar="ATTNSWEEP_PACK_SIZE", min=1, help="Trainings fused into one program; default: tuned for speed."),
]
MaxFailures = Annotated[int | None, _option(min=0, help="Stop the run when more trainings than this have failed.")]

_FLAG = "--shard"
OfShard = Annotated[
    str | None,
    Option(
        _FLAG,
        rich_help_panel="Where",
        metavar="I/N",
        help="Be driver I (0..N-1) of N, with the trials I, I+N, ... of the sweep, in a --dir of its own.",
    ),
]

_OPTIONS = (
    ("address", Address, None),
    ("local", Local, False),
    ("trainers", Trainers, None),
    ("n_nodes", WaitNodes, 0),
    ("device", OnDevice, "auto"),
    ("engine", ByEngine, "auto"),
    ("pack_size", PackSize, None),
    ("max_failures", MaxFailures, None),
)
"""For each option, its name in `Resources`, its type and its default."""


def with_resources(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates the functions behind commands, `without` some options."""
    options = [each for each in _OPTIONS if each[0] not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(**given: Any) -> None:
            values = {name: given.pop(name) for name, *_ in options}
            resources = Resources(n_trainers=parse_trainers(values.pop("trainers")), **values)
            command(**given, resources=resources)

        parameters: list[Parameter] = []
        for each in signature(command).parameters.values():
            if each.name == "resources":
                parameters += (
                    Parameter(name, each.kind, default=default, annotation=of) for name, of, default in options
                )
            else:
                parameters.append(each)
        annotations = {name: of for name, of in get_annotations(command).items() if name != "resources"}
        with_options.__annotations__ = annotations | {name: of for name, of, _ in options}
        with_options.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


def parse_more(text: str | None, option: str, what: str) -> int:
    """N for `+N`, 0 without text."""
    if text is None:
        return 0
    if not re.fullmatch(r"\+[1-9][0-9]{0,8}", text):
        fix = f"write for example {option} +8"
        raise UserError(option, given=text, expected=f"+N, where N is the number of {what} to add", fix=fix)
    return int(text)


def parse_trainers(text: str | None) -> int | tuple[int, int] | None:
    """N or MIN..MAX; `None` stays `None`."""
    if text is None:
        return None
    least, dots, most = text.partition("..")
    try:
        bounds = int(least), int(most if dots else least)
    except ValueError:
        bounds = 0, 0
    if not 1 <= bounds[0] <= bounds[1]:
        expected = "a number of trainers N, or a range MIN..MAX, in whole numbers from 1 on"
        raise UserError("--trainers", given=text, expected=expected, fix="write for example --trainers 2..8")
    return bounds if dots else bounds[0]


def parse_shard(text: str | None) -> Shard | None:
    """Raises UserError if there is no such driver."""
    if text is None:
        return None
    index, _, count = text.partition("/")
    if not (re.fullmatch(r"\d{1,9}", index) and re.fullmatch(r"\d{1,9}", count) and int(index) < int(count)):
        fix = "write for example --shard 0/4 for the first of four drivers"
        raise UserError(_FLAG, given=text, expected="I/N: driver I from 0 to N - 1 of N drivers", fix=fix)
    return Shard(int(index), int(count))
