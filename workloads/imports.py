"""Lists the names that a Python module imports, from its syntax tree, without running it."""

import ast
from collections.abc import Iterable, Iterator


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (number of leading dots, name) for each import in a module, except under `if TYPE_CHECKING`."""
    match tree:
        case ast.Import():
            yield from ((0, alias.name) for alias in tree.names)
        case ast.ImportFrom():
            # In `from package import name`, `name` may be a module of the package, so the yielded name is
            # `package.name`.
            prefix = f"{tree.module}." if tree.module else ""
            yield from ((tree.level, f"{prefix}{alias.name}") for alias in tree.names)
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            for other in tree.orelse:
                yield from imports_of(other)
        case _:
            for child in ast.iter_child_nodes(tree):
                yield from imports_of(child)


def resolved(imports: Iterable[tuple[int, str]], package: str) -> Iterator[str]:
    """Yields the absolute names of the imports of a module in `package`, and the names of all their parent packages."""
    parts = package.split(".")
    for level, name in imports:
        absolute = ".".join([*parts[: len(parts) + 1 - level], name]) if level else name
        yield from with_parents(absolute)


def with_parents(name: str) -> Iterator[str]:
    """Yields a module's name, and then the names of its parent packages, innermost first."""
    while name:
        yield name
        name = name.rpartition(".")[0]
