"""What `attnsweep reproduce` knows. The code of a reproduction is imported when it runs."""

import pkgutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.reproduction.comparison import Comparison

_RUNNER = "attnsweep.reproduction.runner:reproduce"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """A published figure or table, and how `attnsweep reproduce` repeats it.

    A package adds its own by an entry point of the group `attnsweep.reproductions` that names a tuple of them.

    Attributes:
        source: The publication, and the place in it.
        cost: Time on 2 CPU cores.
        function: `module:function`, a function `reproduce(directory, console) -> Comparison` that writes its figures
            into the directory. With `sweep` it is `compare(sweep, directory) -> Comparison`.
        sweep: The shipped sweep that is run, resumed or read first.
        full: What `--full` changes to the publication's size: `sweep`, `trials`, `replicates`, `space`.
        views: SQL that is run before the queries, on the views of the ledger.
        rows, tables, figures: Queries, without a function: `catalog.toml` says how.
    """

    name: str
    title: str
    source: str
    cost: str
    function: str = ""
    sweep: str = ""
    engine: Literal["auto", "eager"] = "auto"
    full: Mapping[str, Any] = field(default_factory=dict)
    views: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Mapping[str, Any]] = ()
    figures: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    is_full: bool = False

    def chosen(self, *, full: bool) -> "Reproduction":
        """Refused if there is no other size."""
        if full and not self.full:
            expected = "a reproduction that is smaller than the publication"
            raise UserError("--full", given=self.name, expected=expected, fix="leave out --full")
        return replace(self, is_full=full)

    def run(self, directory: Path, console: "Console") -> "Comparison":
        """Writes the compared values to `<name>.json` beside the figures."""
        comparison: Comparison
        if self.sweep:
            comparison = pkgutil.resolve_name(_RUNNER)(self, directory, console)
        else:
            comparison = pkgutil.resolve_name(self.function)(directory, console)
        comparison.write(directory / f"{self.name}.json")
        return comparison


def _shipped() -> Iterator[Reproduction]:
    text = files("attnsweep.reproduction").joinpath("catalog.toml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = {}
    for entry in tomllib.loads(text)["reproduction"]:
        base = entries[entry.pop("like")] if "like" in entry else {}
        entries[entry["name"]] = base | entry
        yield Reproduction(**base | entry)


REPRODUCTIONS = tuple(_shipped())
