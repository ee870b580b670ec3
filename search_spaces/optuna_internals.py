"""The private name of Optuna that attnsweep uses. Importing this module fails if the installed Optuna lacks it."""

from importlib.metadata import version

from attnsweep.workloads.errors import UserError

TESTED = "5.0"

try:
    from optuna.study._constrained_optimization import _CONSTRAINTS_KEY as CONSTRAINTS_KEY
except ImportError as error:
    expected = f"Optuna version {TESTED}, which attnsweep was tested with ({error})"
    fix = f"install the tested version with: pip install 'optuna=={TESTED}.*'"
    raise UserError("optuna", given=f"Optuna version {version('optuna')}", expected=expected, fix=fix) from error


def constraint_attribute(name: str) -> str:
    """Where Optuna's `Trial.set_constraint` stores a constraint."""
    return f"{CONSTRAINTS_KEY}:{name}"
