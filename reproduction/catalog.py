"""The catalog of the reproductions that attnsweep ships. The code of a reproduction is imported only when it runs."""

import pkgutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.reproduction.comparison import Comparison


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """A published figure or table, and how `attnsweep reproduce` repeats it.

    A package adds its own to `attnsweep reproduce` by an entry point of the group `attnsweep.reproductions` that names
    a tuple of `Reproduction` objects.

    Attributes:
        name: The name that the user types.
        title: The subject of the figure or table.
        source: The publication, and the place in it.
        cost: The time that the reproduction takes on 2 CPU cores.
        function: `module:function`, a function `reproduce(directory, console) -> Comparison` that writes its sweeps
            and figures into the directory. With `sweep` it is `compare(sweep, directory) -> Comparison`, which reads
            the finished sweep.
        sweep: The name of the shipped sweep that is run, resumed or read first; empty if there is none.
        engine: The engine with which the sweep's numbers in the documents were measured.
        full: `module:function` of the reproduction at the size of the publication, for `--full`: a function
            `reproduce`; empty if `function` has that size.
        of_corpus: `module:function` that also takes the user's parallel text, for `--corpus FILE`; empty if there is
            none.
        corpus: The path of the user's parallel text.
    """

    name: str
    title: str
    source: str
    cost: str
    function: str
    sweep: str = ""
    engine: Literal["auto", "eager"] = "eager"
    full: str = ""
    of_corpus: str = ""
    corpus: str | None = None

    def chosen(self, *, full: bool, corpus: str | None) -> "Reproduction":
        """Returns the reproduction as changed by the options `--full` and `--corpus` of the command line.

        Raises:
            UserError: For an option that the reproduction does not support, or for both options.
        """
        for option, is_given, has_it in (("--full", full, self.full), ("--corpus", corpus is not None, self.of_corpus)):
            if is_given and not has_it:
                expected = f"a reproduction that has the option {option}"
                raise UserError(option, given=self.name, expected=expected, fix=f"leave out {option}")
        if full and corpus is not None:
            raise UserError(
                "--corpus", given=corpus, expected="--corpus without --full", fix="leave out --full or --corpus"
            )
        if corpus is not None:
            return replace(self, function=self.of_corpus, sweep="", corpus=corpus)
        return replace(self, function=self.full, sweep="") if full else self

    def run(self, directory: Path, console: "Console") -> "Comparison":
        """Runs the reproduction, and writes the compared values to `<name>.json` beside the figures."""
        function = pkgutil.resolve_name(self.function)
        comparison: Comparison
        if self.sweep:
            from attnsweep.reproduction.trained import swept

            comparison = function(swept(self.sweep, directory, console, self.engine), directory)
        else:
            comparison = function(directory, console, *(() if self.corpus is None else (self.corpus,)))
        comparison.write(directory / f"{self.name}.json")
        return comparison


def _shipped() -> Iterator[Reproduction]:
    """Yields the reproductions that catalog.toml lists."""
    text = files("attnsweep.reproduction").joinpath("catalog.toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(text)["reproduction"]:
        paths = {
            key: f"attnsweep.reproduction.{entry[key]}" for key in ("function", "full", "of_corpus") if key in entry
        }
        yield Reproduction(**entry | paths)


REPRODUCTIONS = tuple(_shipped())
