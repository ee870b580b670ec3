"""The site: the pages of this folder, the Python API from its docstrings, the command line from the program itself."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attnsweep.orchestrator.ledger.schema import (
    BASE_COLUMNS,
    TEXT,
    curves_schema,
    heads_schema,
    schemas_of,
    trainings_schema,
)
from attnsweep.orchestrator.ledger.views import TRIAL_COLUMNS
from attnsweep.search_spaces.loading import load_sweep, shipped_names
from attnsweep.workloads.parameters import Parameter, TrainingParameters
from attnsweep.workloads.registry import load_workload, registered_names

DOCS = Path(__file__).parent

project = "attnsweep"
author = "the authors of attnsweep"
release = importlib.metadata.version(project)

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "ledgers"]
nitpicky = True
# Types of other libraries, and of modules that are not public, have no page here.
nitpick_ignore_regex = [("py:.*", r"(?!attnsweep\.\w+$).*")]

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"  # in signatures, those of a spec's fields would fill the screen
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
default_role = "code"  # docstrings mark code by single backticks
napoleon_use_ivar = True  # attributes are documented in the class's docstring, and once
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"attnsweep {release}"


def write_command_line(app: Sphinx) -> None:
    """Writes the reference of the command line with Typer's own generator."""
    del app
    words = ["utils", "docs", "--name", project, "--title", "Command line"]
    page = DOCS / "reference" / "command_line.md"
    command = [sys.executable, "-m", "typer", "attnsweep.orchestrator.cli.app", *words, "--output", page]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write_shipped(app: Sphinx) -> None:
    """Writes the reference of the shipped workloads, with their parameters and columns, and of the shipped sweeps."""
    del app
    common = TrainingParameters.declared()
    lines = [
        "# Shipped workloads and sweeps",
        "",
        "Trainings that differ in a *static* parameter never share a pack. Each parameter is a"
        " [column](columns.md) `param_<name>` of the ledger.",
        "",
        "## Parameters of every workload",
        "",
        *_parameters(common.values()),
    ]
    for name in registered_names():
        workload = load_workload(name)
        declared = workload.parameters.declared()
        lines += ["", f"## `{name}`", "", workload.summary, ""]
        lines += _parameters(each for name, each in declared.items() if each != common.get(name))
        for table, schema in schemas_of(workload).items():
            own = [each for each in schema.names if each not in BASE_COLUMNS[table].names]
            if own := [f"`{each}`" for each in own if not each.startswith(("param_", "before_event_"))]:
                lines += ["", f"Further columns of `{table}`: {', '.join(own)}."]
    lines += ["", "## Sweeps", "", *_table("sweep", "workload", "what it asks")]
    sweeps = [load_sweep(name) for name in shipped_names()]
    lines += [f"| `{sweep.name}` | `{sweep.workload}` | {sweep.description} |" for sweep in sweeps]
    _write("shipped.md", lines)


def write_columns(app: Sphinx) -> None:
    """Writes the reference of the ledger's columns: what every sweep has, and the families that workloads add to."""
    del app
    family = ("<name>",)
    tables = {
        "trainings: one row per training": trainings_schema(TrainingParameters, family, family),
        "curves: one row per training, probe and metric": curves_schema(),
        "heads: one row per training, probe, layer and head": heads_schema(family),
    }
    lines = [
        "# The ledger's columns",
        "",
        "A column without an entry under *null means* is never null. Those with `<name>` depend on the"
        " [workload](shipped.md), which also adds a `param_<name>` for each parameter of its own.",
    ]
    for title, schema in tables.items():
        table, _, rows = title.partition(":")
        lines += ["", f"## `{table}`:{rows}", "", *_table("column", "type", "meaning", "null means")]
        for column in schema:
            doc, _, null = column.metadata[b"doc"].decode().replace("<name>", "&lt;name&gt;").partition("; null = ")
            kind = "string" if column.type == TEXT else column.type
            lines.append(f"| `{column.name}` | {kind} | {doc} | {null} |")
    lines += ["", "## `trials`: a view, one row per trial", "", *_table("column", "meaning")]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in TRIAL_COLUMNS.items()]
    _write("columns.md", lines)


def _parameters(declared: Iterable[Parameter]) -> list[str]:
    lines = _table("parameter", "default", "static", "meaning")
    for each in declared:
        default = "null" if each.default is None else each.default
        lines.append(f"| `{each.name}` | {default} | {'yes' if each.static else ''} | {each.doc} |")
    return lines


def _table(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _write(name: str, lines: list[str]) -> None:
    (DOCS / "reference" / name).write_text("\n".join(lines) + "\n")


def escape_type_names(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Escapes the underscore at the end of NumPy's type names, which reStructuredText takes for a link."""
    lines[:] = [line.replace("numpy.str_", r"numpy.str\_") for line in lines]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_command_line)
    app.connect("builder-inited", write_shipped)
    app.connect("builder-inited", write_columns)
    app.connect("autodoc-process-docstring", escape_type_names, priority=900)  # after Napoleon, which writes the types
