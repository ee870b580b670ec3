"""The site: the pages of this folder, the Python API from its docstrings, the command line from the program itself."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attnsweep.search_spaces.loading import load_sweep, shipped_names
from attnsweep.workloads.registry import load_workload, registered_names

DOCS = Path(__file__).parent

project = "attnsweep"
author = "the authors of attnsweep"
release = importlib.metadata.version(project)

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]  # myst_nb reads the pages and the notebooks
exclude_patterns = ["_build", "ledgers"]
nitpicky = True
# Types of other libraries, and of modules that are not public, have no page here.
nitpick_ignore_regex = [("py:.*", r"(?!attnsweep\.\w+$).*")]

myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebooks` runs them
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
    """Writes the reference of the shipped workloads, with their parameters, and of the shipped sweeps."""
    del app
    lines = ["# Shipped workloads and sweeps", ""]
    for name in registered_names():
        workload = load_workload(name)
        lines += [
            f"## `{name}`",
            "",
            workload.summary,
            "",
            "| parameter | default | static | meaning |",
            "|---|---|---|---|",
        ]
        for parameter in workload.parameters.declared().values():
            default = "null" if parameter.default is None else parameter.default
            cells = (f"`{parameter.name}`", str(default), "yes" if parameter.static else "", parameter.doc)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    lines += ["## Sweeps", "", "| sweep | workload | what it asks |", "|---|---|---|"]
    sweeps = [load_sweep(name) for name in shipped_names()]
    lines += [f"| `{sweep.name}` | `{sweep.workload}` | {sweep.description} |" for sweep in sweeps]
    (DOCS / "reference" / "shipped.md").write_text("\n".join(lines) + "\n")


def escape_type_names(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Escapes the underscore at the end of NumPy's type names, which reStructuredText takes for a link."""
    lines[:] = [line.replace("numpy.str_", r"numpy.str\_") for line in lines]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_command_line)
    app.connect("builder-inited", write_shipped)
    app.connect("autodoc-process-docstring", escape_type_names, priority=900)  # after Napoleon, which writes the types
