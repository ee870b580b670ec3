"""What a user adds to a sweep. No result depends on it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:  # it imports pydantic, which would slow down the command line
    from attnsweep.search_spaces.claim import Claim

_NAME = re.compile(r"(?!mlflow\.|attnsweep\.)[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MOST_CHARACTERS = 5000
"""The maximum length of a tag's value, which MLflow sets."""


@dataclass(frozen=True)
class Annotation:
    """`keep_weights`: the trials whose final weights are kept at the end. `claim`: what `verify` tests on the sweep."""

    note: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    keep_weights: tuple[int, ...] = ()
    claim: "Claim | None" = None

    def __post_init__(self) -> None:
        for name in self.tags:
            if not _NAME.fullmatch(name):
                expected = "a name of letters, digits, _ . and - that does not begin with `mlflow.` or `attnsweep.`"
                raise UserError("--tag", given=name, expected=expected, fix="write for example --tag paper=figure-4")
        for subject, text in [("--note", self.note), *(("--tag", text) for text in self.tags.values())]:
            if len(text) > _MOST_CHARACTERS:
                fix = "shorten the text, or put the text in a file and give the file's path"
                raise UserError(subject, given=text, expected=f"at most {_MOST_CHARACTERS} characters", fix=fix)


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Raises UserError if a text is no NAME=VALUE, or a name is given twice."""
    tags: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in tags:
            fix = "write for example --tag paper=figure-4"
            raise UserError("--tag", given=text, expected="NAME=VALUE, with each name once", fix=fix)
        tags[name] = value
    return tags
