"""Rows of parameters: all values are there, and each parameter begins at a full vector."""

import torch

from attnsweep.workloads.engine.layout import Layout

PARAMETERS = {
    "matrix": torch.arange(2 * 3 * 5, dtype=torch.float64).view(2, 3, 5),
    "vector": torch.arange(2 * 17, dtype=torch.float64).view(2, 17),
    "scalar": torch.arange(2, dtype=torch.float64),
    "full": torch.arange(2 * 32, dtype=torch.float64).view(2, 4, 8),
}


def test_views_are_the_parameters_in_the_same_memory() -> None:
    layout = Layout(PARAMETERS)
    rows = layout.rows(PARAMETERS)
    views = layout.views(rows)
    assert list(views) == list(PARAMETERS)
    for name, value in PARAMETERS.items():
        assert torch.equal(views[name], value), name
        assert views[name].data_ptr() % 64 == rows.data_ptr() % 64
    rows += 1.0
    assert torch.equal(views["matrix"], PARAMETERS["matrix"] + 1.0)
    assert rows.stride(0) * rows.element_size() % 64 == 0


def test_gradients_flow_to_the_row_and_not_between_parameters() -> None:
    layout = Layout(PARAMETERS)
    rows = layout.rows(PARAMETERS).requires_grad_()
    views = layout.views(rows)
    (gradient,) = torch.autograd.grad((3.0 * views["vector"]).sum() + views["scalar"].sum(), rows)
    found = layout.views(gradient)
    assert (found["vector"] == 3.0).all()
    assert (found["scalar"] == 1.0).all()
    assert gradient.sum() == 3.0 * 34 + 2
