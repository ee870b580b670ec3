"""What trains each kind of module that docs/problem.md names, as plain PyTorch would, or what is said."""

import re

import pytest
import torch

from attnsweep.workloads.engine.compiling.programs import Programs
from attnsweep.workloads.engine.executors import NoRuleError
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.testing import check_workload, defaults
from tests.workloads.engine.any_module import AnyParameters, lanes_of
from tests.workloads.models.borrowed import BORROWED
from tests.workloads.models.module_kinds import KINDS, Kind, KindWorkload

SLOW = [pytest.mark.slow]
"""To import transformers takes seconds."""
TRAININGS = lanes_of(*[AnyParameters(n_steps=2, init_sigma=sigma, dtype="float32") for sigma in (None, 0.3)]).trainings


@pytest.mark.usefixtures("compiled")
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=name, marks=SLOW if kind.needs else []) for name, kind in KINDS.items()]
)
def test_it_trains_as_in_plain_pytorch_or_is_refused_in_one_sentence(kind: Kind) -> None:
    if kind.needs:
        pytest.importorskip(kind.needs, reason=f"{kind.needs} is in an extra of pyproject.toml")
    workload = KindWorkload(kind)
    with training_settings():
        if kind.refused:
            with pytest.raises(SpecError, match=re.escape(kind.refused)) as caught:
                check_as_plain(workload, TRAININGS)
            assert "\n" not in str(caught.value)
            return
        check_as_plain(workload, TRAININGS)
        eager = Pack(workload, TRAININGS)
        assert eager.advance(2)
        if kind.not_compiled:
            with pytest.raises(NoRuleError, match=re.escape(kind.not_compiled)):
                Pack(workload, TRAININGS).trace()
            return
        other = Pack(workload, TRAININGS, programs=Programs())
        assert other.advance(2)
        torch.testing.assert_close(other._store._ended_rows, eager._store._ended_rows, rtol=1e-4, atol=1e-5)


NEEDS = {"gpt2": "transformers", "llama": "transformers", "transformer_lens": "transformer_lens"}


@pytest.mark.slow
@pytest.mark.sample("nanogpt")
@pytest.mark.parametrize("model", BORROWED.borrowed.parameters.declared()["model"].choices)
def test_the_conformance_suite_holds(model: str) -> None:
    if model in NEEDS:
        pytest.importorskip(NEEDS[model], reason=f"{NEEDS[model]} is in an extra of pyproject.toml")
    workload = BORROWED.borrowed()
    settings = [
        defaults(workload, model=model, dropout=0.1, init_sigma=sigma, n_words=4, width=8, dtype="float32")
        for sigma in (None, 0.1)
    ]
    check_workload(workload, settings, quick=True)
