"""Formulas over the parameters of a trial, such as `4 * d_model` or `d_model % n_heads == 0`. Of Python, only what is
listed here is evaluated."""

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from attnsweep.workloads.declaration import Value
from attnsweep.workloads.errors import SpecError, in_words

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{function.__name__: function for function in (min, max, abs, round, int, float)},
    **{function.__name__: function for function in (math.sqrt, math.exp, math.log, math.log2, math.log10, math.ceil)},
}
_PARTS = (
    *(ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.List, ast.IfExp, ast.BoolOp, ast.And, ast.Or),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UnaryOp, ast.USub, ast.Not),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
)


def names_in(formula: str, subject: str) -> set[str]:
    """The parameters that a formula uses. Raises a `SpecError` if the text is none."""
    try:
        return {node.id for node in _parts(ast.parse(formula, mode="eval").body) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        accepted = "parameters, numbers and texts, joined by + - * / // % ** comparisons, in, and, or, not, if else"
        expected, fix = f"{accepted}, and {', '.join(_FUNCTIONS)}", "write for example d_model % n_heads == 0"
        raise SpecError(subject, given=formula, expected=expected, fix=fix) from error


def evaluated(formula: str, values: Mapping[str, Value], subject: str) -> Any:
    """Raises a `SpecError` if a formula has no value for these values, such as 1 / 0."""
    names_in(formula, subject)
    try:
        tree = _WithBoundedPowers().visit(ast.parse(formula, mode="eval"))
        compiled = compile(ast.fix_missing_locations(tree), subject, "eval")
        return eval(compiled, {"__builtins__": {}, "power of": _power, **_FUNCTIONS}, dict(values))
    except (ArithmeticError, ValueError, TypeError, NameError) as error:
        expected = f"a formula with a value ({in_words(error)})"
        raise SpecError(subject, given=formula, expected=expected, fix="correct the formula") from error


def _parts(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        inner: list[ast.AST] = [*node.args, *node.keywords]
    elif isinstance(node, _PARTS) and not (isinstance(node, ast.Constant) and isinstance(node.value, bytes | complex)):
        inner = [*ast.iter_child_nodes(node)]
    else:
        raise ValueError(type(node).__name__)
    return [node, *(part for child in inner for part in _parts(child))]


class _WithBoundedPowers(ast.NodeTransformer):
    """Python would compute 9 ** 9 ** 9 for hours."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Pow):
            return node
        return ast.Call(ast.Name("power of", ast.Load()), [node.left, node.right], [])


def _power(base: float, exponent: float) -> Any:
    if abs(exponent) > 1024 or abs(base) > 1e300:
        raise OverflowError("a power that is too large")
    return base**exponent
