"""docs/translation.md: do larger, longer or dropped-out translators get positional heads? From `positional_heads`."""

from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import share_row
from attnsweep.reproduction.swept import swept
from attnsweep.workloads.translation.translator import LAYERS

_BY_SETTING = """
with ends as (
    select training_id, role, layer, score_positional_share as share
    from heads join trainings using (training_id)
    where outcome not in ('failed', 'diverged') qualify step = max(step) over (partition by training_id)
), nearest as (
    select training_id, bool_or(role = 'positional') as has, max(share) as share, arg_max(layer, share) as layer
    from ends group by 1
)
select param_d_model, param_n_heads, param_n_epochs, param_learning_rate, param_dropout,
    count(*), count(*) filter (has), max(share), arg_max(layer, share)
from nearest join trainings using (training_id) group by all order by all
"""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 32 trials x 16 seeds of translators."""
    return compare(swept("positional_heads", directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, or a part of one."""
    del directory
    with Ledger(sweep.place).connect() as connection:
        found = connection.execute(_BY_SETTING).fetchall()
    rows: list[ComparedValue] = []
    for width, n_heads, n_epochs, rate, dropout, n, k, nearest, layer in found:
        name = f"width {width}, {n_heads} heads, {n_epochs} passes, rate {rate:g}, dropout {dropout:g}"
        rows.append(share_row(f"{name}: trainings with a positional head", k, n))
        rows.append(
            ComparedValue(
                name=f"  most queries at one offset, of any head ({LAYERS[layer]})", published=None, ours=nearest
            )
        )
    return Comparison(
        title="Do larger, longer or dropped-out translators get positional heads?",
        source="attnsweep, docs/translation.md",
        rows=rows,
        notes=[
            "At the end of training. A head is positional if its strongest key is at one offset for 90% of queries."
        ],
    )
