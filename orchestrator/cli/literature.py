"""`attnsweep reproduce`. Reproductions are found by the entry point group `attnsweep.reproductions`: each entry names a
sequence of them, such as `attnsweep.reproduction.catalog:REPRODUCTIONS`, also in a user's package."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from typer import Argument, Option

from attnsweep.orchestrator.cli.answers import answer, console, say, tell
from attnsweep.orchestrator.cli.arguments import AsJson
from attnsweep.orchestrator.storage.place_names import new_directory
from attnsweep.workloads.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console


class Outcome(Protocol):
    """Our values beside the published ones, as text or one line of JSON."""

    def print(self, console: "Console") -> None: ...
    def to_json(self) -> str: ...


class Reproduction(Protocol):
    """What the command needs of `attnsweep.Reproduction`."""

    name: str
    title: str
    source: str
    cost: str

    def chosen(self, *, full: bool) -> "Reproduction": ...
    def run(self, directory: Path, console: "Console") -> Outcome: ...


def reproduce(
    name: Annotated[
        str | None, Argument(help="What to reproduce; without a name, all reproductions are listed.")
    ] = None,
    directory: Annotated[
        str | None, Option("--dir", help="Directory for the results; default: ./sweeps/<name>-<time>.")
    ] = None,
    full: Annotated[
        bool, Option("--full", metavar="", help="At the size of the publication, where ours is smaller.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a figure or table of the literature, or of the documentation."""
    from attnsweep.orchestrator.storage.place_names import local_path

    known = reproductions()
    if name is None:
        width = max(map(len, known), default=0)
        for listed in known.values():
            tell(f"{listed.name:{width}}  {listed.cost:>6}  {listed.title} ({listed.source})")
        return
    if name not in known:
        fix = did_you_mean(name, known, otherwise="see `attnsweep reproduce`")
        raise UserError("NAME", given=name, expected=f"the name of a reproduction: {', '.join(known)}", fix=fix)
    reproduction = known[name].chosen(full=full)
    path = local_path(new_directory(reproduction.name, directory))
    result = reproduction.run(path, console(stderr=True))
    answer(result.print, result.to_json, as_json=as_json, on_stderr=True)


def reproductions() -> dict[str, Reproduction]:
    """By name. Ours come first, so that no other package replaces one; a package that can't be imported is named."""
    found: dict[str, Reproduction] = {}
    entries = entry_points(group="attnsweep.reproductions")
    for entry in sorted(entries, key=lambda each: (not each.value.startswith("attnsweep."), each.value)):
        try:
            found |= {each.name: each for each in entry.load() if each.name not in found}
        except Exception as error:  # noqa: BLE001  # another package may raise anything
            say(f"attnsweep: left out the reproductions of {entry.value}: {type(error).__name__}: {error}")

    return found
