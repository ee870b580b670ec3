"""The interface between the command line and reproductions of published figures and tables, and how they are found.

A package offers its reproductions through the entry point group `attnsweep.reproductions`. An entry names a sequence
of reproductions, such as `attnsweep.reproduction.catalog:REPRODUCTIONS`.
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
    """The result of a reproduction: our values beside the published ones."""

    def print(self, console: "Console") -> None:
        """Prints our values beside the published ones, as text for people."""

    def to_json(self) -> str:
        """Formats our values and the published ones as one line of JSON."""


@runtime_checkable
class Reproduction(Protocol):
    """Interface of a published figure or table that can be reproduced. `attnsweep.Reproduction` implements it.

    Implementers: creating a reproduction must be cheap, because `attnsweep reproduce` lists them all; import torch, Ray
    and matplotlib in `run`.
    """

    @property
    def name(self) -> str:
        """The name by which a user calls the reproduction on the command line."""

    @property
    def title(self) -> str:
        """The title: what the figure or table shows."""

    @property
    def source(self) -> str:
        """The publication and its figure or table."""

    @property
    def cost(self) -> str:
        """The time that the reproduction takes on 2 CPU cores."""

    def run(self, directory: Path, console: "Console") -> Outcome:
        """Runs the reproduction. Writes its sweeps, figures and rows to the directory.

        A sweep that an earlier call left unfinished in the directory is resumed.
        """


@runtime_checkable
class Choosable(Reproduction, Protocol):
    """Interface of a reproduction that has options. `attnsweep.Reproduction` implements it."""

    def chosen(self, *, full: bool, corpus: str | None) -> Reproduction:
        """Returns a variant of the reproduction: at the size of the publication (`full`), or with the user's own text
        (`corpus`).

        Raises:
            UserError: For an option that the reproduction does not have.
        """


def load_reproductions() -> tuple[dict[str, Reproduction], list[UserError]]:
    """Returns all reproductions by name, and an error for each entry point or name that cannot be used."""
    reproductions: dict[str, Reproduction] = {}
    errors = []
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=_ours_first):
        try:
            offered = _load(entry)
        except UserError as error:
            errors.append(error)
            continue
        for reproduction in offered:
            # If a package is installed twice, `entry_points` returns the same reproduction twice. This repetition is
            # not an error.
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
    """Returns the reproduction with this name.

    Raises:
        UserError: If there is none.
    """
    if name not in reproductions:
        fix = did_you_mean(name, reproductions, otherwise="see `attnsweep reproduce`")
        known_names = ", ".join(reproductions)
        raise UserError("NAME", given=name, expected=f"the name of a reproduction: {known_names}", fix=fix)
    return reproductions[name]


def with_options(reproduction: Reproduction, *, full: bool, corpus: str | None) -> Reproduction:
    """Applies the options of the command line, such as `--full`, to a reproduction.

    Raises:
        UserError: For an option that the reproduction does not have.
    """
    if isinstance(reproduction, Choosable):
        return reproduction.chosen(full=full, corpus=corpus)
    if full or corpus is not None:
        option = "--full" if full else "--corpus"
        fix = f"leave {option} out"
        raise UserError(
            option,
            given=f"the option {option} for the reproduction {reproduction.name}",
            expected="a reproduction that has options",
            fix=fix,
        )
    return reproduction


def _ours_first(entry: EntryPoint) -> tuple[bool, str, str]:
    """Sort key that puts attnsweep's own entry points first, so that another package cannot replace our
    reproductions."""
    return not entry.value.startswith("attnsweep."), entry.name, entry.value


def _load(entry: EntryPoint) -> Sequence[Reproduction]:
    try:
        offered = entry.load()
    except (Exception, SystemExit) as error:  # Loading another package's module may raise any exception.
        raise _unusable(entry, f"an error while it is imported: {type(error).__name__}: {error}") from error
    if not isinstance(offered, Sequence):
        raise _unusable(entry, type(offered).__name__)
    for reproduction in offered:
        if not isinstance(reproduction, Reproduction) or not all(
            isinstance(getattr(reproduction, text), str) for text in _TEXTS
        ):
            raise _unusable(entry, f"a sequence that contains {reproduction!r}")
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
