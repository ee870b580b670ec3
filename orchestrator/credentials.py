"""Passwords and tokens in texts: cut out of what is shown or stored, refused where it would be stored as it is."""

import json
import re
from typing import TYPE_CHECKING

from workloads.errors import SpecError

if TYPE_CHECKING:
    from search_spaces.sweep import Sweep

_SECRET = r"(?:pass|passwd|password|pwd|secret|token|signature|credentials?|(?:api|access|account|secret)[_-]?key)"
# Up to the last @ of the word: a password may hold any other sign, also a slash.
_PASSWORD = r"(?<=://)[^\s/:@]*:\S*@"
_USER = r"(?<=://)[^\s/@]*@"
_OPTION = rf"(?i:(?<=[?&;])([\w.-]*{_SECRET}=)[^\s&;#]+)"


def without_credentials(text: str) -> str:
    """The text as it may be shown: `...` for user and password in its URIs, and for the values of secret options."""
    return re.sub(_OPTION, r"\1...", re.sub(f"{_PASSWORD}|{_USER}", "...@", text))


def refuse_credentials(spec: "Sweep") -> None:
    """Checks that nothing in a spec is secret: `sweep.json`, the ledger and MLflow show it.

    Raises:
        SpecError: For a URI with a password or another secret in it.
    """
    for field, value in spec.model_dump(mode="json").items():
        text = value if isinstance(value, str) else json.dumps(value)
        if re.search(f"{_PASSWORD}|{_OPTION}", text):
            raise SpecError(
                field,
                given=without_credentials(text),
                expected="no password in it: a spec is stored and shown",
                mend="leave it to the environment (a storage: PGPASSWORD, ~/.pgpass, or ?read_default_file=~/.my.cnf)",
            )
