"""Writes nests of loops in C++: where the entries of a step's tensors are computed, and where they are stored.

The outer loops of a nest run over rows, and one or more sweeps run over each row, so that a row stays in the
processor's cache from its sum to its last use. Trainings are no axis: in a program of several each number is a vector
over them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling.operations import Entry, c_type_of, in_type

_NAMES = re.compile(r"\w+")


class Apart(Exception):  # noqa: N818
    """It cannot be computed in this sweep or nest, because it reads what is not yet there."""


class Overwritten(Exception):  # noqa: N818
    """An input would be read after a result has taken its place."""


@dataclass(frozen=True)
class Place:
    """A C++ index along an axis; `varies` if it is data, which may differ between trainings."""

    text: str
    varies: bool = False

    def __add__(self, number: int) -> "Place":
        if self.text.isdigit():
            return Place(str(int(self.text) + number))
        return Place(f"({self.text} + {number})", self.varies) if number else self

    def __mul__(self, number: int) -> "Place":
        if self.text.isdigit():
            return Place(str(int(self.text) * number))
        return Place(f"{self.text} * {number}", self.varies) if number != 1 else self


ZERO = Place("0")
Index = tuple[Place, ...]


@dataclass(eq=False)
class Array:
    """A piece of memory, in use from nest `first` to nest `last`; arrays that are not in use together share a slot."""

    name: str
    c_type: str
    size: int
    is_input: bool = False
    first: int = -1
    last: int = -1
    slot: str = ""

    def used_by(self, nest: int) -> None:
        self.first, self.last = nest if self.first < 0 else self.first, max(self.last, nest)


class Value:
    """A tensor of the step, computed wherever it is read: `entry` writes the expression of one entry."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, entry: Callable[["Body", Index], str]) -> None:
        self.shape, self.dtype, self._entry = tuple(shape), dtype, entry

    @property
    def c_type(self) -> str:
        return c_type_of(self.dtype)

    def entry(self, body: "Body", index: Index) -> Entry:
        return self.at(body, index), self.dtype

    def at(self, body: "Body", index: Index) -> str:
        key = (self, index)
        if key not in body.known:
            body.known[key] = body.named(self._entry(body, index), self.c_type, index)
        return body.known[key]


class Stored(Value):
    """A tensor in memory. `meta` has its shape, strides and offset; if it `is_part`, others share its array."""

    def __init__(self, array: Array, meta: Tensor, *, is_part: bool = False) -> None:
        super().__init__(meta.shape, meta.dtype, lambda body, index: body.load(self, index))
        self.array, self.meta, self.is_part = array, meta, is_part

    def at(self, body: "Body", index: Index) -> str:
        return body.load(self, index)

    def offset(self, index: Index) -> Place:
        terms = [
            place * stride
            for place, stride, size in zip(index, self.meta.stride(), self.shape, strict=True)
            if stride and (size != 1 or place.varies)
        ]
        constant = self.meta.storage_offset() + sum(int(term.text) for term in terms if term.text.isdigit())
        texts = [term.text for term in terms if not term.text.isdigit()]
        texts += [str(constant)] if constant or not texts else []
        return Place(" + ".join(texts), any(term.varies for term in terms))


@dataclass(eq=False)
class Sweep:
    """One pass over a row: lines of C++ before it (`row`), at each entry (`body`, then `stores`) and `after` it.

    Attributes:
        sums: OpenMP's sign and the name of each reduction.
        known: The names of what is computed, by value or array and place.
        inner: The names that change along the row.
    """

    row: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    sums: list[tuple[str, str]] = field(default_factory=list)
    known: dict[Any, str] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)
    is_serial: bool = False


@dataclass(eq=False)
class Nest:
    """Loops over `extents`, of which the first `n_outer` run over rows; or a call.

    Attributes:
        written: Where entries are stored in each array; `None` if at several places.
        of_rows: The arrays with one entry per row: its name, and the sweep behind which it is known.
        read: The places read in each array.
    """

    number: int
    extents: tuple[int, ...] = ()
    n_outer: int = 0
    before: list[str] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    written: dict[Array, str | None] = field(default_factory=dict)
    of_rows: dict[Array, tuple[str, int]] = field(default_factory=dict)
    read: dict[Array, set[str]] = field(default_factory=dict)
    call: str = ""


class Body:
    """Collects what is to be computed in a sweep, until `commit` adds it."""

    def __init__(self, loops: "Loops", nest: Nest, place: int, at_row: bool = False) -> None:
        self.loops, self.nest, self.at_row, self._place = loops, nest, at_row, place
        self.sweep = nest.sweeps[place] if place < len(nest.sweeps) else Sweep()
        loop_names = {f"i{n}" for n in range(nest.n_outer, len(nest.extents))}
        self._new = Sweep(known=dict(self.sweep.known), inner=self.sweep.inner | loop_names)
        self._read: list[tuple[Array, str]] = []
        self._written: dict[Array, str | None] = {}
        self._of_rows: dict[Array, tuple[str, int]] = {}
        self._before: list[str] = []
        self.known = self._new.known

    def index(self, shape: Sequence[int]) -> Index:
        """The loops' present entry of a tensor of this shape."""
        names = (Place(f"i{n}") for n in range(len(shape)))
        return tuple(ZERO if size == 1 else next(names) for size in shape)

    def named(self, expression: str, c_type: str, index: Index) -> str:
        """Names an expression where it is computed: at each entry if it changes along the row, else once per row."""
        if _NAMES.fullmatch(expression):
            return expression
        name = self.loops.new_name("v")
        is_inner = any(token in self._new.inner for place in index for token in _NAMES.findall(place.text))
        if is_inner:
            self._new.inner.add(name)
        lines = self._new.after if self.at_row else self._new.body if is_inner else self._new.row
        lines.append(f"const {c_type} {name} = {expression};")
        return name

    def load(self, value: Stored, index: Index) -> str:
        """The name of an entry in memory. Raises `Apart` if this nest stores the array, but not this entry before."""
        array, offset = value.array, value.offset(index)
        if (array, offset.text) in self.known:
            return self.known[array, offset.text]
        if array in self.nest.written and self.nest.written[array] != offset.text:
            raise Apart
        if array in self.nest.of_rows:
            name, place = self.nest.of_rows[array]
            if place == self._place and not self.at_row:
                raise Apart
            return name
        if array in self.loops.overwritten and array not in self.nest.written:
            raise Overwritten
        self._read.append((array, offset.text))
        text = f"gather(&{array.name}[0], {offset.text})" if offset.varies else f"{array.name}[{offset.text}]"
        name = self.named(text, array.c_type, (offset,))
        self.known[array, offset.text] = name
        return name

    def store(self, value: Stored, index: Index, text: str) -> None:
        """Raises `Apart` if this nest reads other entries of the array: the order of the loops would count."""
        array, offset = value.array, value.offset(index).text
        reads = self.nest.read.get(array, set()) | {read for other, read in self._read if other is array}
        if reads - {offset} or (array in self.nest.written and not value.is_part):
            raise Apart
        text = self.named(text, array.c_type, index)
        (self._new.after if self.at_row else self._new.stores).append(f"{array.name}[{offset}] = {text};")
        self.known[array, offset] = text
        self._written[array] = None if value.is_part else offset
        if self.at_row:
            self._of_rows[array] = text, self._place

    def reduce(self, value: Stored, index: Index, text: str, how: "Reduction") -> None:
        """Reduces a row's entries to one."""
        name, array, offset = self.loops.new_name("r"), value.array, value.offset(index).text
        self._new.sums.append((how.sign, name))
        self._new.row.append(f"{array.c_type} {name} = {how.start(array.c_type)};")
        self._new.stores.append(f"{name} = {how.form.format(name, text)};")
        result = how.end(name, array.c_type)
        if result != name:
            end = self.loops.new_name("r")
            self._new.after.append(f"const {array.c_type} {end} = {result};")
            name = end
        self._new.after.append(f"{array.name}[{offset}] = {name};")
        self._written[array], self._of_rows[array] = offset, (name, self._place)

    def add_to(self, value: Stored, index: Index, text: str, how: "Reduction", *, is_serial: bool = False) -> None:
        """Reduces entries of all rows to one in memory."""
        array, offset, size = value.array, value.offset(index), value.meta.numel()
        if not value.is_part and (array in self.nest.written or array in self.nest.read):
            raise Apart
        entry = f"{array.name}[x + {value.meta.storage_offset()}]"
        self._before.append(f"for (int64_t x = 0; x < {size}; x++) {entry} = {how.start(array.c_type)};")
        self.change(array, offset, how.form.format("{0}", text), is_serial=is_serial)

    def change(self, array: Array, offset: Place, form: str, *, is_serial: bool) -> None:
        """Replaces an entry by `form` of it; at a place that varies, each training's own entry."""
        entry = f"{array.name}[{offset.text}]"
        changed = f"CHANGE({array.name}, {offset.text}, ({form.format('before')}));"
        line = changed if offset.varies else f"{entry} = {form.format(entry)};"
        (self._new.after if self.at_row else self._new.stores).append(line)
        self._new.is_serial |= is_serial
        self._written[array] = None

    def commit(self) -> None:
        nest, sweep, new = self.nest, self.sweep, self._new
        if sweep not in nest.sweeps:
            nest.sweeps.append(sweep)
        for name in ("row", "body", "stores", "after", "sums"):
            getattr(sweep, name).extend(getattr(new, name))
        if not self.at_row:  # what is computed behind the sweep is not known within it
            sweep.known, sweep.inner, sweep.is_serial = new.known, new.inner, sweep.is_serial or new.is_serial
        nest.before += self._before
        nest.written |= self._written
        nest.of_rows |= self._of_rows
        for array, text in self._read:
            nest.read.setdefault(array, set()).add(text)
        for array in (*self._written, *(array for array, _ in self._read)):
            array.used_by(nest.number)


@dataclass(frozen=True)
class Reduction:
    """`form` joins the value so far and an entry; `start` is the value of no entries; `end` makes the result; `sign` is
    OpenMP's name of it, empty if it has none: then the loop is not vectorized."""

    form: str
    start: Callable[[str], str]
    sign: str
    end: Callable[[str, str], str] = lambda name, _: name


@dataclass
class _Slot:
    """Memory of several arrays, one after the other; in use to nest `last`."""

    name: str
    c_type: str
    size: int = 1
    last: int = -1


class Loops:
    """The nests of a program, in order, and the arrays that they read and write."""

    def __init__(self) -> None:
        self.nests: list[Nest] = []
        self.arrays: list[Array] = []
        self.overwritten: set[Array] = set()
        self._n_names = 0

    def new_name(self, prefix: str) -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def array(self, c_type: str, size: int, *, is_input: bool = False) -> Array:
        array = Array(self.new_name("a"), c_type, size, is_input)
        self.arrays.append(array)
        return array

    def new(self, shape: Sequence[int], dtype: torch.dtype) -> Stored:
        meta = torch.empty(tuple(shape), dtype=dtype, device="meta")
        return Stored(self.array(c_type_of(dtype), meta.numel()), meta)

    def compute(
        self,
        extents: tuple[int, ...],
        what: Callable[[Body], None],
        n_outer: int | None = None,
        *,
        in_new_nest: bool = False,
    ) -> None:
        """Computes `what` at all entries, in the last nest (its last sweep, a further one, behind it) or a new one."""
        last = self.nests[-1] if self.nests and not self.nests[-1].call and not in_new_nest else None
        if last and last.extents == extents and n_outer in (None, last.n_outer):
            for place in (len(last.sweeps) - 1, len(last.sweeps)):
                if self._tried(Body(self, last, place), what):
                    return
        elif last and last.extents[: last.n_outer] == extents and n_outer is None:  # noqa: SIM102
            if self._tried(Body(self, last, len(last.sweeps) - 1, at_row=True), what):
                return
        nest = Nest(len(self.nests), extents, max(len(extents) - 1, 0) if n_outer is None else n_outer)
        self.nests.append(nest)
        body = Body(self, nest, 0)
        what(body)
        body.commit()

    def call(self, text: str, arrays: Sequence[Array]) -> None:
        nest = Nest(len(self.nests), call=text)
        self.nests.append(nest)
        for array in arrays:
            array.used_by(nest.number)

    def stored(self, value: Value) -> Stored:
        return value if isinstance(value, Stored) else self.copied(value)

    def copied(self, value: Value) -> Stored:
        stored = self.new(value.shape, value.dtype)
        self.write(stored, value)
        return stored

    def write(self, target: Stored, value: Value) -> None:
        def write(body: Body) -> None:
            text = in_type(target.c_type, value.entry(body, body.index(value.shape)))
            body.store(target, body.index(target.shape), text)

        self.compute(extents_of(value.shape), write)

    @staticmethod
    def _tried(body: Body, what: Callable[[Body], None]) -> bool:
        try:
            what(body)
        except Apart:
            return False
        body.commit()
        return True

    def place(self) -> list[tuple[str, str, int]]:
        """Gives each array a slot that is free while it is in use. Returns name, type and size of the slots."""
        slots: list[_Slot] = []
        for array in sorted((each for each in self.arrays if not each.is_input), key=lambda each: each.first):
            free = [slot for slot in slots if slot.c_type == array.c_type and slot.last < array.first]
            if not free:
                free = [_Slot(f"s{len(slots)}", array.c_type)]
                slots += free
            # The smallest that is large enough, else the largest.
            slot = min(free, key=lambda slot: (slot.size < array.size, abs(slot.size - array.size)))
            slot.size, slot.last, array.slot = max(slot.size, array.size), array.last, slot.name
        return [(slot.name, slot.c_type, slot.size) for slot in slots]

    def functions(self) -> list[str]:
        return [
            f"static __attribute__((noinline)) void n{nest.number}(Memory& m) {{\n{_text(nest)}\n}}"
            for nest in self.nests
        ]


def extents_of(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _text(nest: Nest) -> str:
    if nest.call:
        return nest.call
    loops = [f"for (int64_t i{n} = 0; i{n} < {size}; i{n}++) {{" for n, size in enumerate(nest.extents)]
    lines = [*nest.before, *loops[: nest.n_outer]]
    for sweep in nest.sweeps:
        lines += sweep.row
        inner = loops[nest.n_outer :]
        signs = {sign for sign, _ in sweep.sums}
        if inner and not sweep.is_serial and "" not in signs:
            sums = [
                f" reduction({s}: {', '.join(name for sign, name in sweep.sums if sign == s)})" for s in sorted(signs)
            ]
            lines += [*inner[:-1], f"SIMD(omp simd{''.join(sums)})", inner[-1]]
        else:
            lines += inner
        lines += [*sweep.body, *sweep.stores, "}" * len(inner), *sweep.after]
    return "\n".join([*lines, "}" * nest.n_outer])
