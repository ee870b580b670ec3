"""The tasks on which a GPT can be trained, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from attnsweep.workloads.gpt.tasks.bigram_table import BigramTable
from attnsweep.workloads.gpt.tasks.induction import Induction
from attnsweep.workloads.gpt.tasks.order_2_chain import Order2Chain
from attnsweep.workloads.gpt.tasks.task import Laws, Sequences, Task
from attnsweep.workloads.gpt.tasks.text import OwnText

TASKS: Mapping[str, Task] = MappingProxyType(
    {task.name: task for task in (BigramTable(), Order2Chain(), Induction(), OwnText())}
)

__all__ = ["TASKS", "Laws", "OwnText", "Sequences", "Task"]
