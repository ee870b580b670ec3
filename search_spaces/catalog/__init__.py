"""The shipped sweeps. Each is a variable, with the sweep's name, in one of this folder's files."""

from attnsweep.search_spaces.catalog import category_pairs, field, formal_languages, gpt, translation
from attnsweep.search_spaces.sweep import Sweep

_FILES = (category_pairs, field, formal_languages, gpt, translation)
SHIPPED = {
    sweep.name: sweep
    for sweep in sorted(
        (value for file in _FILES for value in vars(file).values() if isinstance(value, Sweep)),
        key=lambda sweep: sweep.name,
    )
}
"""All shipped sweeps by name, in the order of names."""


def __getattr__(name: str) -> Sweep:
    """Makes each sweep importable from this package: `from attnsweep.search_spaces.catalog import quickstart`."""
    if name not in SHIPPED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return SHIPPED[name]
