"""The columns of a ledger without rows: the columns of every sweep, and one for each parameter in `sweep.json`.

The workload is not loaded, because its code may be a stranger's.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS, PARAMETER_TYPES
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Dimension, Float, Int


def declared_columns(place: Place) -> Mapping[str, pa.Schema]:
    """Returns the columns that each table of a sweep has before there are any rows.

    Raises:
        UserError: If `sweep.json` is damaged.
    """
    if not place.has_text(SWEEP_FILE):
        return BASE_COLUMNS
    directory = SweepDirectory.open(place)
    trainings = BASE_COLUMNS["trainings"]
    for name, dimension in {**directory.defaults, **directory.spec.parameters()}.items():
        if f"param_{name}" not in trainings.names:
            trainings = trainings.append(pa.field(f"param_{name}", _type(dimension)))
    return {**BASE_COLUMNS, "trainings": trainings}


def _type(dimension: Dimension) -> pa.DataType:
    """Returns the column type of a parameter's first value that is not null; double if all are null."""
    kinds = (type(value) for value in _values(dimension) if value is not None)
    return PARAMETER_TYPES[next(kinds, float)]


def _values(dimension: Dimension) -> Iterator[object]:
    match dimension:
        case Float(low=low) | Int(low=low):
            yield low
        case Categorical(choices=choices):
            yield from choices
        case Conditional(then=then, otherwise=otherwise):
            yield from _values(then)
            yield from _values(otherwise)
        case _:
            yield dimension
