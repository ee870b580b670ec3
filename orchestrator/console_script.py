"""The console script `attnsweep`. It imports the command line inside a `try`, so that Ctrl-C during the imports ends
with an exit code and not with a traceback."""

import sys


def main() -> None:
    """Runs the command line."""
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
