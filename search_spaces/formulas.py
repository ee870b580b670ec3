"""Formulas over the parameters of a trial, such as `4 * d_model` or `d_model % n_heads == 0`. They are data: nothing of
Python but what stands here is evaluated."""

import ast
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from attnsweep.workloads.declaration import Value
from attnsweep.workloads.errors import SpecError, in_words


def _power(base: float, exponent: float) -> Any:
    # Python would compute 9 ** 9 ** 9 for hours.
    if abs(exponent) > 1024 or abs(base) > 1e300:
        raise OverflowError("a power that is too large")
    return base**exponent


_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{function.__name__: function for function in (min, max, abs, round, int, float)},
    **{function.__name__: function for function in (math.sqrt, math.exp, math.log, math.log2, math.log10, math.ceil)},
}


def names_in(formula: str, subject: str) -> set[str]:
    """The parameters that a formula uses. Raises a `SpecError` if the text is none."""
    try:
        tree = ast.parse(formula, mode="eval").body
        names: set[str] = set()
        _collect(tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        accepted = "parameters, numbers and texts, joined by + - * / // % ** comparisons, in, and, or, not, if else"
        expected, fix = f"{accepted}, and {', '.join(_FUNCTIONS)}", "write for example d_model % n_heads == 0"
        raise SpecError(subject, given=formula, expected=expected, fix=fix) from error
    return names


def evaluated(formula: str, values: Mapping[str, Value], subject: str) -> Any:
    """Raises a `SpecError` if a formula has no value for these values, such as 1 / 0."""
    try:
        return _value(ast.parse(formula, mode="eval").body, values)
    except (ArithmeticError, ValueError, TypeError, KeyError) as error:
        raise SpecError(
            subject, given=formula, expected=f"a formula with a value ({in_words(error)})", fix="correct the formula"
        ) from error


def _collect(node: ast.expr, names: set[str]) -> None:
    match node:
        case ast.Name(id=name):
            names.add(name)
        case ast.Constant(value=bool() | int() | float() | str() | None):
            pass
        case ast.BinOp(op=op) | ast.UnaryOp(op=op) if type(op) in _OPERATORS:
            pass
        case ast.Compare(ops=ops) if all(type(op) in _OPERATORS for op in ops):
            pass
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            pass
        case ast.BoolOp() | ast.IfExp() | ast.Tuple() | ast.List():
            pass
        case _:
            raise ValueError(type(node).__name__)
    for part in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        if isinstance(part, ast.expr):
            _collect(part, names)


def _value(node: ast.expr, values: Mapping[str, Value]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_number(left, values), _number(right, values))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_value(operand, values))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            terms = [_value(term, values) for term in (left, *comparators)]
            return all(_OPERATORS[type(op)](*pair) for op, pair in zip(ops, itertools.pairwise(terms), strict=True))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, values) for part in parts)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, values) else orelse, values)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_value(argument, values) for argument in arguments))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [_value(part, values) for part in parts]
    raise ValueError(type(node).__name__)


def _number(node: ast.expr, values: Mapping[str, Value]) -> float:
    value = _value(node, values)
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value
