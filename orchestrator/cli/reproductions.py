"""Reproductions of published figures and tables: their interface to the command line, and how it finds them.

A package offers its own through the entry point group `attnsweep.reproductions`. An entry names a sequence of
reproductions, such as `attnsweep.reproduction.catalog:REPRODUCTIONS`.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attnsweep.workloads.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

ENTRY_POINT_GROUP = "attnsweep.reproductions"
_TEXTS = ("name", "title", "source", "cost")


class Outcome(Protocol):
    """Our values beside the published ones."""

    def print(self, console: "Console") -> None:
        """Prints them for a reader."""

    def to_json(self) -> str:
        """One line of JSON."""


@runtime_checkable
class Reproduction(Protocol):
    """One figure or table. `attnsweep.Reproduction` is the ready-made implementation.

    Implementers: creating one is cheap. `attnsweep reproduce` lists them all, so torch, Ray and matplotlib are imported
    by `run`.
    """

    @property
    def name(self) -> str:
        """The name that the user types."""

    @property
    def title(self) -> str:
        """The subject of the figure or table."""

    @property
    def source(self) -> str:
        """The publication, and where in it."""

    @property
    def cost(self) -> str:
        """The time that it takes on 2 CPU cores."""

    def run(self, directory: Path, console: "Console") -> Outcome:
        """Reproduces it. Its sweeps, figures and rows are written into the directory.

        A sweep that an earlier call left unfinished in the directory is resumed.
        """


@runtime_checkable
class Choosable(Reproduction, Protocol):
    """A reproduction with options; `attnsweep.Reproduction` is one."""

    def chosen(self, *, full: bool, corpus: str | None) -> Reproduction:
        """With `--full`, the size of the publication, or with the parallel text of `--corpus`.

        Raises:
            UserError: For an option that it does not have.
        """


def load_reproductions() -> tuple[dict[str, Reproduction], list[UserError]]:
    """All reproductions by name, and one error for each entry point or name that cannot be used."""
    found: dict[str, Reproduction] = {}
    errors = []
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=_ours_first):
        try:
            offered = _load(entry)
        except UserError as error:
            errors.append(error)
            continue
        for each in offered:
            # A package that is installed twice offers the same entry twice.
            if each.name in found and each is not found[each.name]:
                errors.append(
                    UserError(
                        _described(entry),
                        given=each.name,
                        expected="a name that no other package offers",
                        fix="rename it; it is left out",
                    )
                )
            found.setdefault(each.name, each)
    return found, errors


def find_reproduction(name: str, reproductions: Mapping[str, Reproduction]) -> Reproduction:
    """The reproduction of this name.

    Raises:
        UserError: If there is none.
    """
    if name not in reproductions:
        fix = did_you_mean(name, reproductions, otherwise="see `attnsweep reproduce`")
        raise UserError("NAME", given=name, expected=f"one of {', '.join(reproductions)}", fix=fix)
    return reproductions[name]


def with_options(reproduction: Reproduction, *, full: bool, corpus: str | None) -> Reproduction:
    """The reproduction with the options of the command line.

    Raises:
        UserError: For an option that it does not have.
    """
    if isinstance(reproduction, Choosable):
        return reproduction.chosen(full=full, corpus=corpus)
    if full or corpus is not None:
        option = "--full" if full else "--corpus"
        raise UserError(option, given=reproduction.name, expected="a reproduction with options", fix="leave it out")
    return reproduction


def _ours_first(entry: EntryPoint) -> tuple[bool, str, str]:
    """The order of entries: another package cannot replace a reproduction of ours."""
    return not entry.value.startswith("attnsweep."), entry.name, entry.value


def _load(entry: EntryPoint) -> Sequence[Reproduction]:
    try:
        offered = entry.load()
    except (Exception, SystemExit) as error:  # Another package's module may raise anything.
        raise _unusable(entry, f"{type(error).__name__}: {error}") from error
    if not isinstance(offered, Sequence):
        raise _unusable(entry, type(offered).__name__)
    for each in offered:
        if not isinstance(each, Reproduction) or not all(isinstance(getattr(each, text), str) for text in _TEXTS):
            raise _unusable(entry, f"a sequence with {each!r}")
    return offered


def _unusable(entry: EntryPoint, given: str) -> UserError:
    return UserError(
        _described(entry),
        given=given,
        expected="a sequence of attnsweep.Reproduction",
        fix="repair or uninstall its package; its reproductions are left out",
    )


def _described(entry: EntryPoint) -> str:
    return f"entry point {entry.name} = {entry.value}"
