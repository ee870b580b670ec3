"""All checks of the doctor, in the order in which a user fixes the faults that they find."""

from collections.abc import Iterator

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.tools.doctor.checks import Finding, check_nodes
from attnsweep.orchestrator.tools.doctor.nodes import nodes_of_cluster, this_machine
from attnsweep.orchestrator.tools.doctor.services import check_directory, check_mlflow, check_token, check_versions
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.registry import load_workload


def examine(address: str | None, directory: Place | None) -> Iterator[Finding]:
    """Checks this machine, or each node of a cluster. Yields the finding of each check as soon as it is made.

    Args:
        address: The cluster; `None` for this machine, on which no Ray is started.
        directory: The directory of a future sweep, which is checked too; `None` for no directory.
    """
    yield check_versions()
    yield check_token(address)
    driver = Environment.current(load_workload("category_pairs"))
    if address is None:
        yield from check_nodes(this_machine(), driver)
    else:
        yield from _cluster_findings(address, driver)
    yield check_mlflow()
    if directory is not None:
        yield check_directory(directory)


def _cluster_findings(address: str, driver: Environment) -> Iterator[Finding]:
    from attnsweep.orchestrator.training.cluster import connection
    from attnsweep.orchestrator.training.resources import cluster_address

    try:
        with connection(cluster_address(address)):
            yield from check_nodes(nodes_of_cluster(), driver)
    except UserError as mistake:
        yield Finding("cluster", f"{mistake.given} is not {mistake.expected}", mistake.fix)
