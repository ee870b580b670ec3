"""What a user adds to a sweep. No result depends on it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:  # it imports pydantic, which would slow down the command line
    from attnsweep.search_spaces.claim import Claim

_TAG = re.compile(r"(?!mlflow\.|attnsweep\.)(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,99})=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class Annotation:
    """`keep_weights`: the trials whose final weights are kept. `claim`: what `verify` tests."""

    note: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    keep_weights: tuple[int, ...] = ()
    claim: "Claim | None" = None


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Raises UserError if a text is no NAME=VALUE, or a name is given twice."""
    tags: dict[str, str] = {}
    for text in texts:
        tag = _TAG.fullmatch(text)
        if tag is None or tag["name"] in tags:
            expected = "NAME=VALUE, each NAME once, of letters, digits, _ . and -, not mlflow.* or attnsweep.*"
            raise UserError("--tag", given=text, expected=expected, fix="write for example --tag paper=figure-4")
        tags[tag["name"]] = tag["value"]
    return tags
