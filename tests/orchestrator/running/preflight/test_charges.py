"""`record_charges` is refused where nothing would be recorded."""

import pytest

from attnsweep.orchestrator.running.preflight import Sample, check_charges
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.identities.identity import Identity


class Undeclared(CategoryPairs):
    """A workload that declares nothing."""

    def identities(self, parameters: CategoryPairsParameters) -> tuple[Identity, ...]:
        del parameters
        return ()


class DeclaredOnlyWithSoftmax(CategoryPairs):
    """A workload whose trainings declare something under one parameter only."""

    def identities(self, parameters: CategoryPairsParameters) -> tuple[Identity, ...]:
        return super().identities(parameters) if parameters.attention_activation == "softmax" else ()


def recording(**space: Dimension) -> Sweep:
    return Sweep(
        name="c", workload="category_pairs", space={"record_charges": True, **space}, sampler="random", trials=8
    )


@pytest.mark.parametrize("recorded", [True, Categorical((False, True))])
def test_a_workload_without_charges_is_refused(recorded: Dimension) -> None:
    with pytest.raises(
        SpecError, match=r"record_charges: got True, expected record_charges=false, because the workload category_pairs"
    ):
        check_charges(Sample.of(recording(record_charges=recorded), Undeclared()))


def test_charges_of_some_trainings_suffice() -> None:
    check_charges(Sample.of(recording(), CategoryPairs()))
    check_charges(Sample.of(recording(record_charges=False), Undeclared()))
    either = recording(attention_activation=Categorical(("identity", "softmax")))
    check_charges(Sample.of(either, DeclaredOnlyWithSoftmax()))
