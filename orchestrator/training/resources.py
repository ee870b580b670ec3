from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from attnsweep.orchestrator.training.messages import CHECKPOINT_SECONDS
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.orchestrator.storage.environment import Engine

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
TrainerCount: TypeAlias = int | tuple[int, int] | None


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a run may use.

    Attributes:
        address: A Ray cluster; `None` for `RAY_ADDRESS` or this machine.
        local: Train in this process, without Ray.
        n_trainers: A number, or the least with which to begin and the most; `None` for one per GPU or core. If fewer
            fit, the rest are requested from Ray, whose autoscaler may add machines.
        n_nodes: Machines of the cluster that must be up before training begins.
        device: `auto` uses the GPUs if the cluster has some.
        engine: Of a new sweep; `auto` chooses `compiled` where compiling pays.
        pack_size: Trainings in a pack; `None` searches for the fastest size.
        max_failures: Trainings that may fail in this run before it stops; `None` for any number.
        checkpoint_seconds: Between two checkpoints of a pack.
        mlflow: Whether the run logs to MLflow; `attnsweep mlflow-sync` does it at any time.
    """

    address: str | None = None
    local: bool = False
    n_trainers: TrainerCount = None
    n_nodes: int = 0
    device: Device = "auto"
    engine: "Engine | Literal['auto']" = "auto"
    pack_size: int | None = None
    max_failures: int | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    mlflow: bool = True

    def __post_init__(self) -> None:
        for is_given, given in (
            (self.address is not None, f"--address {self.address}"),
            (self.n_trainers not in (None, 1), f"--trainers {self.n_trainers}"),
            (self.n_nodes > 1, f"--wait-nodes {self.n_nodes}"),
        ):
            if self.local and is_given:
                expected = "no option for a cluster or for several trainers, because --local trains in this process"
                fix = f"leave out --local, or leave out {given}"
                raise UserError("--local", given=given, expected=expected, fix=fix)
