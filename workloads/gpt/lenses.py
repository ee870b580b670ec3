"""How `attnsweep heads` names a GPT's tokens."""

from collections.abc import Sequence

from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.gpt.tasks import OwnText
from attnsweep.workloads.gpt.text import read_text
from attnsweep.workloads.lenses import Lenses


def _vocabulary(parameters: GPTParameters) -> Sequence[str]:
    if parameters.task != OwnText.name or parameters.corpus is None:
        return ()
    return read_text(parameters.corpus).words


LENSES = Lenses(vocabulary=_vocabulary)
