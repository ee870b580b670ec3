"""The console script `attnsweep`. It imports nothing before Ctrl-C is met with an exit code instead of a traceback."""

import atexit
import gc
import sys


def main() -> None:
    """Runs the command line."""
    # The collector of garbage finds none among modules, and looks through them again and again: while they are
    # imported, a sixth of the time of `attnsweep status` or `run`, and once more at the end.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
