
from attnsweep import Float, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from own_names import NAME

class Own(CategoryPairs):
    name = NAME

def sweep():
    space = {"n_steps": 75, "n_categories": 3, "n_positions": 4, "init_sigma": Float(low=1e-3, high=1.0, log=True)}
    return Sweep(name="own", workload="own.py:Own", space=space, sampler="random", trials=4, replicates=4)
