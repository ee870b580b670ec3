"""The console script `attnsweep`. It imports the command line inside a `try`, so that Ctrl-C during the imports ends
with an exit code and not with a traceback."""

import atexit
import gc
import sys


def main() -> None:
    """Runs the command line. Garbage collections are made rare, to save time."""
    # Imports leave no garbage, but scanning the imported objects for garbage would take a sixth of the time of
    # `attnsweep status` or `run`. So collections are made rare, and `gc.freeze` excludes these objects from the
    # collection at exit.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
