"""The console script `attnsweep`. It imports the command line inside a `try`, so that Ctrl-C during the imports ends
with an exit code and not with a traceback."""

import gc
import sys


def main() -> None:
    gc.set_threshold(50_000)  # scanning imported objects would take a seventh of a first run
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
