"""Sweeps of small attention models: everything that users import.

`import attnsweep` is cheap: it imports neither torch nor Ray. A name is imported from its module at its first use. The
names and their modules are listed in `__init__.pyi`, which type checkers read too.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("attnsweep")
