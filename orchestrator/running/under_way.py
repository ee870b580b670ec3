"""What `attnsweep status` shows of a pack that is being trained."""

from attnsweep.orchestrator.storage.whereabouts import PackUnderWay
from attnsweep.orchestrator.training.messages import PackOrder, Probed, Progress


def pack_under_way(order: PackOrder, reached: Progress | Probed | None) -> PackUnderWay:
    """A pack and its trainer's last report; `None` if there was none yet."""
    return PackUnderWay(
        pack=order.pack,
        n_trainings=len(order.tasks),
        step=reached.step if reached else 0,
        n_steps=order.tasks[0].training.parameters.n_steps,
        n_running=reached.n_running if reached else None,
        where=reached.where if reached else "",
    )
