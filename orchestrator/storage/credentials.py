"""Removes passwords and tokens from texts, and refuses specs that contain any."""

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from attnsweep.workloads.errors import SpecError

if TYPE_CHECKING:
    from attnsweep.search_spaces.sweep import Sweep

_KEY = r"(?:api|access|account|secret|private|subscription)[_-]?key"
_SECRET = re.compile(
    rf".*(?:pass|passwd|password|passphrase|pwd|secret|token|signature|credentials?|{_KEY})"
    r"|(?:.*[._-])?(?:sig|auth|authorization)|key",
    re.IGNORECASE,
)
_PORT = r"\d{1,5}(?:[/?#\s,;.)'\"]|$)"
# A password may contain any character, even blanks, slashes and @. So it is taken to end at the last @ before a slash
# or quote or, if the word after this @ contains a further one, at the last @ of the word.
_PASSWORD = rf"(?<=://)(?!\[)[^\s/:]*:(?:(?!{_PORT})[^\n]*?@(?:[^\n/'\"]*@)?(?:\S*@)?|\S*@)"
_USER = r"(?<=://)[^\s/]*@"
_OPTION = r"(?<=[?&;])([\w.%+-]+)=([^\s&;#]+)"


def without_credentials(text: str) -> str:
    """Replaces by `...` users and passwords in URIs, and the values of secret options."""
    return re.sub(_USER, "...@", _without_secrets(text))


def refuse_credentials(spec: "Sweep") -> None:
    """Raises SpecError if a spec contains a secret: `sweep.json` and MLflow would show it."""
    expected = "a text without a password, because a spec is stored and shown"
    fix = "set the password outside the spec (for a storage: PGPASSWORD, ~/.pgpass, ?read_default_file=~/.my.cnf)"
    for field, value in spec.model_dump(mode="json").items():
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(value, ensure_ascii=False)):
            if _without_secrets(text) != text:
                raise SpecError(field, given=without_credentials(text), expected=expected, fix=fix)


def _without_secrets(text: str) -> str:
    return re.sub(_OPTION, _shown_option, re.sub(_PASSWORD, "...@", text))


def _shown_option(option: re.Match[str]) -> str:
    return f"{option[1]}=..." if _SECRET.fullmatch(unquote_plus(option[1])) else option[0]
