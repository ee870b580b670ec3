"""The names that a module's text imports, read without running it."""

import ast
from collections.abc import Iterable, Iterator


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a module imports, each with its number of leading dots. Imports for type checkers are left out."""
    match tree:
        case ast.Import():
            yield from ((0, alias.name) for alias in tree.names)
        case ast.ImportFrom():
            # A name imported from a package may be one of its modules.
            prefix = f"{tree.module}." if tree.module else ""
            yield from ((tree.level, f"{prefix}{alias.name}") for alias in tree.names)
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            for other in tree.orelse:
                yield from imports_of(other)
        case _:
            for child in ast.iter_child_nodes(tree):
                yield from imports_of(child)


def resolved(imports: Iterable[tuple[int, str]], package: str) -> Iterator[str]:
    """The absolute names of what a module of `package` imports, and of all packages that hold them."""
    parts = package.split(".")
    for level, name in imports:
        absolute = ".".join([*parts[: len(parts) + 1 - level], name]) if level else name
        yield from with_parents(absolute)


def with_parents(name: str) -> Iterator[str]:
    """A module's name and those of its packages, from the inside out."""
    while name:
        yield name
        name = name.rpartition(".")[0]
