"""The single-file entry for `ray submit`: attnsweep's own command line, on the cluster that it lands on.

ray submit infra/cluster.yaml infra/ray_submit.py -- run quickstart --dir /shared/sweeps/first
"""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("RAY_ADDRESS", "auto")
    try:
        from attnsweep.orchestrator.cli import main
    except ModuleNotFoundError as missing:
        if missing.name != "orchestrator":
            raise
        raise SystemExit(
            f"attnsweep: not installed for {sys.executable}; "
            "put the bin/ of its environment first on the head's PATH (see infra/cluster.yaml)"
        ) from missing
    main()
