"""Verb. The one list of operations, by name."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.operations import files, maintenance, tables, versions  # noqa: F401
from lakehouse_source.operations.entry import DECLARED, Operation

OPERATIONS: Mapping[str, Operation] = {o.name: o for o in sorted(DECLARED, key=lambda o: o.name)}
