"""Printed output of commands whose results have no `print` method."""
