"""Figures 1 and 3 of Shin & Matzinger 2025: matrices that the trainings of a sweep have learned."""

from matplotlib.figure import Figure

from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.figures import HeatMap, draw_heat_maps

_FLAVOURS = ("unconstrained", "lean_1", "lean_2", "lean_3")
_MEDIAN_MATCH = """
select training_id from heads join trainings using (training_id)
qualify row_number() over (partition by training_id order by step desc) = 1
order by score_match_logits_target limit 1 offset (select count(*) // 2 from trainings)
"""
_MEDIAN_LOSS = """
select training_id from trainings where param_flavour = ? order by eval_loss
limit 1 offset (select count(*) // 2 from trainings where param_flavour = ?)
"""


def figure_1(sweep: SweepDirectory) -> Figure:
    """The learned attention logits beside the table to be learned, for the training whose correlation is the median."""
    with Ledger(sweep.place).connect() as connection:
        [(training,)] = connection.execute(_MEDIAN_MATCH).fetchall()
    _, state = ended_lanes(sweep, [training])
    learned = (state["k_SS"].mT @ state["q_SS"])[0].double()
    tables = {"q* less column means": state["target_NN"][0].double(), "learned k^t q less column means": learned}
    names = {"xlabel": "current category", "ylabel": "previous category"}
    maps = [
        HeatMap(values=(table - table.mean(0)).numpy(), axes={"title": title, **names})
        for title, table in tables.items()
    ]
    return draw_heat_maps([maps], share_scale=False)


def figure_3(sweep: SweepDirectory) -> Figure:
    """The attention logits and the values of the training of median loss of each flavour."""
    with Ledger(sweep.place).connect() as connection:
        shown = [connection.execute(_MEDIAN_LOSS, [name, name]).fetchall()[0][0] for name in _FLAVOURS]
    _, state = ended_lanes(sweep, shown)
    rows = (
        ("k^t q", state["k_SS"].mT @ state["q_SS"], {"xlabel": "attends from", "ylabel": "attends to"}),
        ("v", state["v_VV"], {"xlabel": "reads", "ylabel": "writes"}),
    )
    maps = [
        [
            HeatMap(values=value.double().numpy(), axes={"title": f"{matrix}, {flavour}", **names})
            for flavour, value in zip(_FLAVOURS, values, strict=True)
        ]
        for matrix, values, names in rows
    ]
    return draw_heat_maps(maps, share_scale=False)
