"""Where the search spaces of two compared sweeps differ, and which trials lie in both."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Dimension, Float, Int, Scalar, Zip
from attnsweep.search_spaces.sweep import Sweep, zipped_names
from attnsweep.workloads.errors import SpecError


@dataclass(frozen=True, slots=True)
class SpaceDifference:
    """How the search spaces and samplers of sweeps A and B differ.

    Attributes:
        ranges: For each parameter that varies otherwise in B, its ranges in A and in B.
        samplers: The samplers of A and B; empty if they are the same.
        n_outside: The trainings of A and of B that lie outside the other's ranges.
    """

    ranges: Mapping[str, tuple[str, str]]
    samplers: tuple[str, ...]
    n_outside: tuple[int, int]

    def sentences(self) -> Iterator[str]:
        if self.ranges:
            a, b = self.n_outside
            yield f"ranges differ in {', '.join(f'{name} {old} -> {new}' for name, (old, new) in self.ranges.items())}"
            yield f"only the common part is compared: {a} trainings of A and {b} of B lie outside and are left out"
        if self.samplers:
            yield f"samplers differ, {' -> '.join(self.samplers)}: each rate is over the trials that its sampler chose"


@dataclass(frozen=True, slots=True)
class Space:
    """Where one side's trials lie: as its specs say or, for a parameter that they do not name, at its one value."""

    specs: Sequence[Sweep]
    constants: Mapping[str, Scalar]

    def samplers(self) -> str:
        return ", ".join(dict.fromkeys(spec.sampler for spec in self.specs))

    def ranges(self) -> dict[str, str]:
        """In words, by parameter and, as `where`, what each trial meets."""
        names = dict.fromkeys(name for spec in self.specs for name in {**self.constants, **spec.parameters()})
        words = {name: [self._label(spec, name) for spec in self.specs] for name in names}
        words["where"] = [" and ".join(sorted(spec.where)) or "anywhere" for spec in self.specs]
        return {name: " or ".join(dict.fromkeys(labels)) for name, labels in words.items()}

    def contains(self, point: Mapping[str, Scalar], names: Collection[str], other: "Space") -> bool:
        """Whether a trial of the other side lies in this side's ranges."""
        # A null that no range lists: the parameter has no meaning in this trial.
        meant = {name for name in names if point.get(name) is not None or other._lists_null(name)} & point.keys()
        return any(self._takes(spec, point, meant) for spec in self.specs)

    def _label(self, spec: Sweep, name: str) -> str:
        zipped = _zip_of(spec, name)
        return _label(zipped[1] if zipped else spec.parameters().get(name, self.constants.get(name)))

    def _takes(self, spec: Sweep, point: Mapping[str, Scalar], names: Collection[str]) -> bool:
        dimensions = {**self.constants, **spec.parameters()}
        try:
            computed = spec.completed(point)
        except SpecError:  # the point does not meet `where`
            return False
        for name in names:
            zipped = _zip_of(spec, name)
            if zipped and tuple(point.get(each) for each in zipped[0]) not in zipped[1].rows:
                return False
            if isinstance(dimensions.get(name), Derived):
                if point[name] != computed[name]:
                    return False
            elif name in dimensions and not _takes(dimensions[name], point, name):
                return False
        return True

    def _lists_null(self, name: str) -> bool:
        given = [{**self.constants, **spec.parameters()}.get(name, 0) for spec in self.specs]
        return any(each is None or (isinstance(each, Categorical) and None in each.choices) for each in given)


def _zip_of(spec: Sweep, name: str) -> tuple[list[str], Zip] | None:
    zips = ((zipped_names(key), each) for key, each in spec.space.items() if isinstance(each, Zip))
    return next((pair for pair in zips if name in pair[0]), None)


def _takes(dimension: Dimension, point: Mapping[str, Scalar], name: str) -> bool:
    value = point[name]
    match dimension:
        case Conditional():
            branch = dimension.branch(point.get(dimension.on))
            return branch is None or _takes(branch, point, name)
        case Float() | Int():
            return isinstance(value, int | float) and dimension.low <= value <= dimension.high
        case Categorical():
            return value in dimension.choices
    return value == dimension


def _label(dimension: Dimension) -> str:
    match dimension:
        case Float() | Int():
            points = f" in {dimension.points} points" if dimension.points else ""
            return f"{dimension.low:g}..{dimension.high:g}{' log' if dimension.log else ''}{points}"
        case Categorical():
            weights = dict(zip(dimension.choices, dimension.weights or (), strict=False))
            choices = sorted({*dimension.choices}, key=lambda each: (each is None, isinstance(each, str), each))
            words = (value_label(each) + (f" (weight {weights[each]:g})" if weights else "") for each in choices)
            return f"{{{', '.join(words)}}}"
        case Derived():
            return dimension.formula
        case Conditional():
            others = "" if dimension.otherwise is None else f", else {_label(dimension.otherwise)}"
            return f"{_label(dimension.then)} if {dimension.on} in {_label(Categorical(dimension.among))}{others}"
        case Zip():
            return " ".join(f"({', '.join(map(value_label, row))})" for row in dimension.rows)
    return value_label(dimension)
