"""Search spaces and sweeps as immutable objects: written in Python or YAML, stored as JSON without loss."""

if __name__ != "attnsweep.search_spaces":
    raise ImportError("search_spaces cannot be imported by this name: import attnsweep, or attnsweep.search_spaces")

from attnsweep.search_spaces.dimensions import Categorical as Categorical
from attnsweep.search_spaces.dimensions import Conditional as Conditional
from attnsweep.search_spaces.dimensions import Derived as Derived
from attnsweep.search_spaces.dimensions import Float as Float
from attnsweep.search_spaces.dimensions import Int as Int
from attnsweep.search_spaces.dimensions import Zip as Zip
from attnsweep.search_spaces.measured import LossQuantile as LossQuantile
from attnsweep.search_spaces.measured import OnsetQuantile as OnsetQuantile
from attnsweep.search_spaces.measured import Rate as Rate
from attnsweep.search_spaces.measured import StuckRate as StuckRate
from attnsweep.search_spaces.pruners import Pruner as Pruner
from attnsweep.search_spaces.replication import Sequential as Sequential
from attnsweep.search_spaces.sweep import Sweep as Sweep
