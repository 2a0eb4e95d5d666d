"""Verb. The named operations of plake: one list for CALL, the command line and servers.

`OPERATIONS` is the list. An entry says what an operation takes, which columns its rows
have and what it does. A door finds the dataset, translates types and shows the rows. Importing
the list imports neither PyArrow nor any room that works.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.operations import maintenance, tables, versions  # noqa: F401
from lakehouse_source.operations.entry import DECLARED, Operation

OPERATIONS: Mapping[str, Operation] = {o.name: o for o in sorted(DECLARED, key=lambda o: o.name)}
