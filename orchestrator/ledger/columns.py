"""Checks that the columns of a ledger's files are those of its tables. Every reader relies on it."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa

from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS, PARAMETER_TYPES

_FAMILIES: Mapping[str, tuple[pa.DataType, ...]] = MappingProxyType(
    {"param_": tuple(PARAMETER_TYPES.values()), "level_": (pa.float64(),), "score_": (pa.float64(),)}
)
"""The allowed types of columns whose names depend on the workload, by the prefix of the name."""


def misfits(table: str, schema: pa.Schema) -> Iterator[str]:
    """Problems of the columns of one file, in words."""
    found = dict(zip(schema.names, schema, strict=True))
    if len(found) < len(schema.names):
        yield "several columns of one name"
    for column in BASE_COLUMNS[table]:
        field = found.pop(column.name, None)
        if field is None:
            # A nullable column may be newer than the file.
            if not column.nullable:
                yield f"no column {column.name}"
        elif field.type != column.type:
            yield f"the column {column.name} is {field.type}, not {column.type}"
        elif field.nullable and not column.nullable:
            yield f"the column {column.name} may be null"
    for name, field in found.items():
        kinds = next((kinds for prefix, kinds in _FAMILIES.items() if name.startswith(prefix)), (field.type,))
        if field.type not in kinds:
            yield f"the column {name} is {field.type}, not {' or '.join(map(str, kinds))}"


def clashes(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """The files in which a column has another type than in an earlier file: the problem in words, by file name."""
    known: dict[str, pa.DataType] = {}
    found = {}
    for name, schema in schemas.items():
        for field in schema:
            if known.setdefault(field.name, field.type) != field.type:
                found[name] = f"the column {field.name} is {field.type}, not {known[field.name]} as in another file"
    return found
