"""The option `--shard`, which says which trials a driver owns: by a number, or by the scheduler's task number."""

import os
import re
from typing import Annotated

import typer

from attnsweep.orchestrator.storage.shards import MOST_SHARDS, Shard
from attnsweep.workloads.errors import UserError

_FLAG = "--shard"
_INDEX = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
"""Variables with the number of this task: in Slurm, and in an indexed Job of Kubernetes. Only Slurm gives the count."""
_COUNT = "SLURM_ARRAY_TASK_COUNT"

OfShard = Annotated[
    str | None,
    typer.Option(
        _FLAG,
        rich_help_panel="Where",
        metavar="I/N",
        help="Be driver I (0..N-1) of N, with the trials I, I+N, ...; auto or auto/N: as the scheduler numbers it.",
    ),
]


def parse_shard(text: str | None) -> Shard | None:
    """Parses the value of `--shard`. For `auto`, the environment variables of the cluster's scheduler give the numbers.

    Raises:
        UserError: If the text is not a shard, or the environment variables that `auto` needs are missing.
    """
    if text is None:
        return None
    index, _, count = text.partition("/")
    if index == "auto":
        index = next((value for name in _INDEX if (value := os.environ.get(name))), "")
        count = count or os.environ.get(_COUNT, "")
    if not (re.fullmatch(r"\d{1,9}", index) and re.fullmatch(r"\d{1,9}", count) and _is_one(int(index), int(count))):
        variables = [f"{name}={os.environ[name]}" for name in (*_INDEX, _COUNT) if name in os.environ]
        raise UserError(
            _FLAG,
            given=f"{text}, with the environment variables"
            f" {', '.join(variables) or 'none of ' + ', '.join((*_INDEX, _COUNT))}"
            if "auto" in text
            else text,
            expected=f"I/N: shard number I from 0 to N - 1 of N shards, where N is at most {MOST_SHARDS}",
            fix="number the tasks of the job array from 0, or give --shard auto/N or --shard I/N"
            if "auto" in text
            else "write for example --shard 0/4 for the first of four drivers, and 1/4, 2/4, 3/4 for the others",
        )
    return Shard(int(index), int(count))


def _is_one(index: int, count: int) -> bool:
    return index < count <= MOST_SHARDS
