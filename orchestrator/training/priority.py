"""Priority between the sweeps on a Ray cluster: which sweeps get resources before this one, and which sweeps occupy the
cores that it waits for.

Each driver stores a note in Ray's control store: what its trainers hold, and what it claims. A note counts only while
Ray reports its driver as alive, so notes of killed drivers are ignored. A sweep takes the resources that sweeps of
higher priority do not claim.
"""

import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated
from uuid import uuid4

import ray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray.exceptions import RayError

from attnsweep.orchestrator.storage.run_records import span
from attnsweep.orchestrator.training.nodes import Amount, Node
from attnsweep.orchestrator.training.ray_internals import put_note, read_notes, remove_note, running_jobs

_LOOK_SECONDS = 2.0
_TELL_SECONDS = 10.0
"""Seconds after which a note is written again even if only its age has changed."""
_ANSWER_SECONDS = 1.0
_MOST_NAMED = 3
_LITTLE = 1e-3

Amounts = Mapping[str, Amount]
"""Amounts of resources by node id."""


class Note(BaseModel):
    """A note by which a driver tells the drivers of other sweeps on the cluster which resources its sweep holds and
    wants.

    Attributes:
        sweep: The name of the driver's sweep.
        priority: The sweep's priority: sweeps of higher priority come first.
        driver: The driver's process, in words.
        job: The driver's job id in Ray, in hexadecimal.
        n_trainers: Number of trainers that are up.
        seconds: How long the sweep has had trainers.
        held: Resources of these trainers.
        claimed: Resources that the sweep wants of the nodes that are up, including those that its trainers hold.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sweep: str
    priority: int
    driver: str
    job: str
    n_trainers: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    held: Amounts
    claimed: Amounts

    @property
    def name(self) -> str:
        """The sweep and its driver, in words."""
        return f"sweep {self.sweep} (priority {self.priority}, {self.driver})"

    def __str__(self) -> str:
        trainers, hosts = _counted(self.n_trainers, "trainer"), _counted(len(self.held), "host")
        return f"{self.name} has {trainers} on {hosts}, for {span(timedelta(seconds=self.seconds))}"


class OtherSweeps:
    """The other sweeps on the cluster, known by the notes that their drivers write. Also writes such a note for this
    sweep."""

    def __init__(self, sweep: str, priority: int) -> None:
        self._sweep, self._priority = sweep, priority
        self._key = uuid4().hex
        self._driver = f"process {os.getpid()} on {platform.node()}"
        self._job = str(ray.get_runtime_context().get_job_id())
        self._others: list[Note] = []
        self._in_the_way: list[Note] = []
        self._began: float | None = None
        self._looked = self._told_at = float("-inf")
        self._told: object = None
        self._notices: list[str] = []

    @property
    def claims(self) -> Amounts:
        """The resources that sweeps of higher priority want on each node."""
        return _total(note.claimed for note in self._first)

    @property
    def waiting_for(self) -> str:
        """Names the sweeps that hold cores or GPUs that this sweep wants; empty if there are none."""
        return _in_words(self._in_the_way or self._first)

    @property
    def _first(self) -> list[Note]:
        return [note for note in self._others if note.priority > self._priority and note.claimed]

    def look(self) -> None:
        """Reads the notes that say which resources other sweeps on the cluster hold and want, unless they were read a
        moment ago. If the cluster does not answer, the notes from before stay."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        before = self._first
        with suppress(RayError):
            self._others = self._read()
        self._notices += [f"this sweep gives way to {note.name}" for note in _missing(self._first, before)]
        self._notices += [f"{note.name} no longer wants its cores" for note in _missing(before, self._first)]

    def _read(self) -> list[Note]:
        texts = {key: text for key, text in read_notes(_ANSWER_SECONDS).items() if key != self._key}
        notes = {key: note for key, text in texts.items() if (note := _parsed(text)) is not None}
        running = running_jobs({note.job for note in notes.values()}, _ANSWER_SECONDS)
        for key, note in notes.items():
            if note.job not in running:
                remove_note(key, _ANSWER_SECONDS)
        alive = [note for note in notes.values() if note.job in running]
        return sorted(alive, key=lambda note: (-note.priority, note.sweep))

    def tell(self, n_trainers: int, held: Amounts, claimed: Amounts) -> None:
        """Writes a note that tells the other sweeps on the cluster which resources this sweep holds and wants. Writes
        it only if its content has changed or the last note is older than `_TELL_SECONDS`.

        Args:
            n_trainers: Number of trainers that are up.
            held: Resources of these trainers.
            claimed: Resources that the sweep wants of the nodes that are up.
        """
        now = time.monotonic()
        if self._told == (held, claimed) and now - self._told_at < _TELL_SECONDS:
            return
        if n_trainers and self._began is None:
            self._began = now
        note = Note(
            sweep=self._sweep,
            priority=self._priority,
            driver=self._driver,
            job=self._job,
            n_trainers=n_trainers,
            seconds=0.0 if self._began is None else now - self._began,
            held=held,
            claimed=claimed,
        )
        with suppress(RayError):
            put_note(self._key, note.model_dump_json(), _ANSWER_SECONDS)
            self._told, self._told_at = (held, claimed), now

    def compare(self, nodes: Mapping[str, Node], claimed: Amounts, waiting: Mapping[str, int]) -> None:
        """Finds the other sweeps that occupy nodes for which trainers of this sweep wait. If a sweep is newly among
        them, the user gets a message.

        Args:
            nodes: The nodes that are up, by id.
            claimed: Resources that this sweep wants of them.
            waiting: Number of this sweep's trainers that are not up, by the node that they wait for.
        """
        held = _total(note.held for note in self._others)
        full = {
            node_id
            for node_id in waiting
            if node_id in held and not _fits(nodes[node_id], held[node_id], claimed.get(node_id, Amount()))
        }
        before, self._in_the_way = self._in_the_way, [note for note in self._others if full & note.held.keys()]
        if _missing(self._in_the_way, before):
            number = _counted(sum(waiting[node_id] for node_id in full), "trainer")
            self._notices.append(f"waiting with {number} for cores: {_in_words(self._in_the_way)}")

    def notices(self) -> list[str]:
        """Returns new messages for the user about other sweeps, one line each: those since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """Removes the note by which this sweep tells the cluster's other sweeps which resources it holds and wants."""
        with suppress(RayError):
            remove_note(self._key, _ANSWER_SECONDS)


def _parsed(text: str) -> Note | None:
    try:
        return Note.model_validate_json(text)
    except ValidationError:
        # Drivers with another version of attnsweep may write their notes in another format. Such a note is ignored.
        return None


def _missing(notes: Sequence[Note], earlier: Sequence[Note]) -> list[Note]:
    """Returns those of `notes` whose driver has no note about the same sweep in `earlier`."""
    drivers = {(note.driver, note.sweep) for note in earlier}
    return [note for note in notes if (note.driver, note.sweep) not in drivers]


def _total(amounts: Iterable[Amounts]) -> dict[str, Amount]:
    total: dict[str, Amount] = {}
    for by_node in amounts:
        for node_id, amount in by_node.items():
            before = total.get(node_id, Amount())
            total[node_id] = Amount(before.n_cpus + amount.n_cpus, before.n_gpus + amount.n_gpus)
    return total


def _fits(node: Node, held: Amount, claimed: Amount) -> bool:
    has_cores = held.n_cpus + claimed.n_cpus <= node.n_cpus + _LITTLE
    return has_cores and held.n_gpus + claimed.n_gpus <= node.n_gpus + _LITTLE


def _in_words(notes: Sequence[Note]) -> str:
    words = [str(note) for note in notes[:_MOST_NAMED]]
    if len(notes) > _MOST_NAMED:
        words.append(f"{len(notes) - _MOST_NAMED} more sweeps")
    return "; ".join(words)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
