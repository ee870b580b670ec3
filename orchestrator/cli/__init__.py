"""The command line. Fast to import: torch, ray and mlflow are loaded by the commands that need them."""

from attnsweep.orchestrator.cli.app import app as app
from attnsweep.orchestrator.cli.main import main as main
