"""The console script `attnsweep`. It imports nothing before Ctrl-C is met with an exit code instead of a traceback."""

import sys


def main() -> None:
    """Runs the command line."""
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
