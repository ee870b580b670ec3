"""Sweeps of small attention models: all that users import. Each name loads its module when it is first used.

The names stand in `__init__.pyi`, which type checkers read and from which they are loaded: `import attnsweep` itself
imports neither torch nor Ray.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("attnsweep")
