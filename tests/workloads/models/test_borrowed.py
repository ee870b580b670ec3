"""The borrowed models of docs/examples hold what the engine relies on, with dropout."""

import pytest

from attnsweep.workloads.testing import check_workload, defaults
from tests.workloads.models.borrowed import BORROWED

NEEDS = {"gpt2": "transformers", "llama": "transformers", "transformer_lens": "transformer_lens"}


@pytest.mark.slow
@pytest.mark.sample("nanogpt")
@pytest.mark.parametrize("model", BORROWED.MODELS)
def test_the_conformance_suite_holds(model: str) -> None:
    if model in NEEDS:
        pytest.importorskip(NEEDS[model], reason=f"{NEEDS[model]} is in an extra of pyproject.toml")
    workload = BORROWED.Borrowed()
    settings = [
        defaults(workload, model=model, dropout=0.1, init_sigma=sigma, n_words=4, width=8, dtype="float32")
        for sigma in (None, 0.1)
    ]
    check_workload(workload, settings, quick=True, say=lambda _: None)
