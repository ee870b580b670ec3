"""The single-file entry for `ray submit`: the command line of attnsweep, run on the cluster's head node.

ray submit infra/cluster.yaml infra/ray_submit.py -- run quickstart --dir /shared/sweeps/first --or-resume
"""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("RAY_ADDRESS", "auto")
    try:
        from attnsweep.orchestrator.cli import main
    except ModuleNotFoundError as missing:
        if missing.name != "attnsweep":
            raise
        raise SystemExit(
            f"attnsweep: not installed for {sys.executable}; "
            "put the bin/ of its environment first on the head's PATH (see infra/cluster.yaml)"
        ) from missing
    main()
