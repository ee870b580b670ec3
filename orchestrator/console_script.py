"""The console script `attnsweep`. It imports the command line inside a `try`, so that Ctrl-C during the imports gives
an exit code instead of a traceback.
"""

import atexit
import gc
import sys


def main() -> None:
    """Runs the command line. Makes garbage collections rare, and exits with code 130 for Ctrl-C during the imports."""
    # Importing modules creates no garbage, but the garbage collector scans all imported objects again and again. These
    # scans took a sixth of the time of `attnsweep status` or `run`, and there was another scan at exit.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
