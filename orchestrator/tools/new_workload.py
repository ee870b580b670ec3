"""`attnsweep new-workload`: writes the example `look_back.py` under another name."""

import importlib.util
import keyword
import re
from contextlib import suppress
from pathlib import Path

from attnsweep.orchestrator.storage.output_file import unwritable
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.registry import registered_names

_TEMPLATE = Path(__file__).with_name("look_back.py")
_LONGEST = 40
_VALID = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def write_workload(name: str, folder: Path) -> Path:
    _check_name(name)
    path = folder / f"{name}.py"
    content = _TEMPLATE.read_text(encoding="utf-8").replace(_TEMPLATE.stem, name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError as error:
        fix = "choose another name, or move the existing file"
        raise UserError("NAME", given=name, expected=f"a name whose file {path} does not exist yet", fix=fix) from error
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise unwritable(path, "NAME", error.strerror) from error
    return path


def _check_name(name: str) -> None:
    if len(name) > _LONGEST or not _VALID.fullmatch(name):
        expected = f"at most {_LONGEST} lower-case letters, digits and single underscores, such as copy_task"
    elif keyword.iskeyword(name):
        expected = "a name that is not a keyword of Python"
    # Python looks for modules in a script's folder first: a file torch.py would be imported instead of PyTorch.
    elif name in registered_names() or importlib.util.find_spec(name) is not None:
        expected = "a name that no installed workload or module has"
    else:
        return
    raise UserError("NAME", given=name, expected=expected, fix="choose another name")
