"""Commands that compare results with the literature. Reproductions of published figures are found among the installed
packages.

A package offers its reproductions through the entry point group `attnsweep.reproductions`. An entry names a sequence
of reproductions, such as `attnsweep.reproduction.catalog:REPRODUCTIONS`. Fast to import: every command loads its
libraries when it runs.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

from typer import Argument, Option

from attnsweep.orchestrator.cli.answers import answer, console, say, tell
from attnsweep.orchestrator.cli.arguments import AsJson
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.place_names import new_directory
from attnsweep.workloads.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console


class Outcome(Protocol):
    """Our values beside the published ones, as text or one line of JSON."""

    def print(self, console: "Console") -> None: ...
    def to_json(self) -> str: ...


@runtime_checkable
class Reproduction(Protocol):
    """What `attnsweep reproduce` needs to know and call to reproduce a published figure or table.
    `attnsweep.Reproduction` implements this interface.

    Implementers: creating a reproduction must be cheap, because `attnsweep reproduce` lists them all; import torch, Ray
    and matplotlib in `run`.

    Attributes:
        name: The name on the command line.
        title: What the figure or table shows.
        source: The publication and its figure or table.
        cost: The time that the reproduction takes on 2 CPU cores.
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def cost(self) -> str: ...

    def chosen(self, *, full: bool) -> "Reproduction":
        """At the size of the publication, if `full`; raises a `UserError` if it has no other size."""

    def run(self, directory: Path, console: "Console") -> Outcome:
        """Trains what the reproduction needs, and compares the results with the published ones. Writes the sweeps, the
        figures and the compared values to the folder `directory`.

        A sweep that an earlier call left unfinished in the directory is resumed.
        """


def reproduce(
    name: Annotated[
        str | None, Argument(help="What to reproduce; without a name, all reproductions are listed.")
    ] = None,
    directory: Annotated[
        str | None, Option("--dir", help="Directory for the results; default: ./sweeps/<name>-<time>.")
    ] = None,
    full: Annotated[bool, Option("--full", help="At the size of the publication, where ours is smaller.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a figure or table of the literature, or of the documentation."""
    from attnsweep.orchestrator.storage.place_names import local_path

    reproductions, errors = load_reproductions()
    for error in errors:
        say(f"attnsweep: {without_credentials(str(error))}")
    if name is None:
        width = max(map(len, reproductions), default=0)
        for listed in reproductions.values():
            tell(f"{listed.name:{width}}  {listed.cost:>6}  {listed.title} ({listed.source})")
        return
    reproduction = find_reproduction(name, reproductions).chosen(full=full)
    path = local_path(new_directory(reproduction.name, directory))
    result = reproduction.run(path, console(stderr=True))
    answer(result.print, result.to_json, as_json=as_json, on_stderr=True)


def load_reproductions() -> tuple[dict[str, Reproduction], list[UserError]]:
    """By name, and an error for each that cannot be loaded or whose name is taken."""
    reproductions: dict[str, Reproduction] = {}
    errors = []
    entries = importlib.metadata.entry_points(group="attnsweep.reproductions")
    # The entry points of attnsweep itself come first, so that another package cannot replace one of our reproductions.
    for entry in sorted(entries, key=lambda each: (not each.value.startswith("attnsweep."), each.name, each.value)):
        try:
            offered = _load(entry)
        except UserError as error:
            errors.append(error)
            continue
        for reproduction in offered:
            # If a package is installed twice, `entry_points` lists the same reproduction twice, which is no error.
            if reproduction.name in reproductions and reproduction is not reproductions[reproduction.name]:
                errors.append(
                    UserError(
                        _described(entry),
                        given=reproduction.name,
                        expected="a name that no other package offers",
                        fix="rename it in its package; this reproduction is left out",
                    )
                )
            reproductions.setdefault(reproduction.name, reproduction)
    return reproductions, errors


def find_reproduction(name: str, reproductions: Mapping[str, Reproduction]) -> Reproduction:
    """Raises a `UserError` that lists the names."""
    if name not in reproductions:
        fix = did_you_mean(name, reproductions, otherwise="see `attnsweep reproduce`")
        known_names = ", ".join(reproductions)
        raise UserError("NAME", given=name, expected=f"the name of a reproduction: {known_names}", fix=fix)
    return reproductions[name]


def _load(entry: EntryPoint) -> Sequence[Reproduction]:
    try:
        offered = entry.load()
    except (Exception, SystemExit) as error:  # Loading another package's module may raise any exception.
        raise _unusable(entry, f"a module whose import raises {type(error).__name__}: {error}") from error
    if not isinstance(offered, Sequence):
        raise _unusable(entry, type(offered).__name__)
    for reproduction in offered:
        if not isinstance(reproduction, Reproduction) or not all(
            isinstance(getattr(reproduction, text), str) for text in ("name", "title", "source", "cost")
        ):
            raise _unusable(
                entry,
                f"a sequence with {reproduction!r}, which is no Reproduction whose name, title, source and cost are"
                " strings",
            )
    return offered


def _unusable(entry: EntryPoint, given: str) -> UserError:
    fix = "repair or uninstall its package; its reproductions are left out"
    return UserError(_described(entry), given=given, expected="a sequence of attnsweep.Reproduction", fix=fix)


def _described(entry: EntryPoint) -> str:
    return f"entry point {entry.name} = {entry.value}"
