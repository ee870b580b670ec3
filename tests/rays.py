"""The Rays that several modules of tests share."""

from contextlib import ExitStack

SHARED_RAYS = ExitStack()
"""Ends them. tests/conftest.py closes it with the last test that uses one."""
