"""The console script `attnsweep`. It imports the command line inside a `try`, so that Ctrl-C during the imports ends
with an exit code and not with a traceback."""

import atexit
import gc
import sys


def main() -> None:
    """Runs the command line. Garbage collections are made rare, to save time."""
    # Python's garbage collector would spend a sixth of the time of `attnsweep status` or `run` on scanning imported
    # objects, none of which is garbage. So collections are made rare. At exit there is always one, and `gc.freeze`
    # makes it skip the imported objects.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        from attnsweep.orchestrator import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()
