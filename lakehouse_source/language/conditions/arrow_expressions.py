"""Pure. Reads Arrow expressions as trees and computes them over tables in memory.

Arrow has no interface to take an expression apart. So the expression is read from its pickled form:
a list of entries in the metadata of a batch whose columns hold the literals and options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.language.limits import check_depth


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A column, by the names from the top level down."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A literal."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A compute function; `options` holds its options by name, None where it has none."""

    name: str
    terms: tuple[Tree, ...]
    options: pa.StructScalar | None


Tree: TypeAlias = FieldRef | Scalar | Call


class NotUnderstood(Exception):
    """The pickled form of an expression holds something unknown."""


_ENTRY = re.compile(r"^(call|end|field_ref|nested_field_ref|literal|options): '(.*)'$")


def read(expression: pc.Expression) -> Tree:
    """The tree of an expression.

    A column name with a line break in it can be misread: the entries are separated by
    line breaks. A caller excludes such names (`names_hold`), or builds the expression again and
    compares.

    Raises:
        NotUnderstood: the expression cannot be pickled, or its form is unknown.
        InvalidPredicateError: it is nested too deep.
    """
    try:
        raw = expression.__reduce__()[1][0]
        batch = pa.ipc.open_file(raw).read_all()
    except (pa.ArrowException, LookupError, TypeError) as exc:
        raise NotUnderstood from exc
    # The entries repeat keys: as a mapping they would lose all but one of each.
    text = batch.schema.to_string(
        show_field_metadata=False, show_schema_metadata=True, truncate_metadata=False
    )
    entries: list[tuple[str, str]] = []
    for line in text.partition("-- schema metadata --\n")[2].split("\n"):
        found = _ENTRY.match(line)
        if found is None:
            raise NotUnderstood
        entries.append((found[1], found[2]))
    at = iter(entries)
    try:
        tree = _tree(at, next(at), batch, 0)
    except (StopIteration, ValueError, LookupError) as exc:
        raise NotUnderstood from exc
    if next(at, None) is not None:
        raise NotUnderstood
    return tree


def _tree(
    entries: Iterator[tuple[str, str]], head: tuple[str, str], batch: pa.Table, depth: int
) -> Tree:
    check_depth(depth)
    kind, value = head
    if kind == "field_ref":
        return FieldRef((value,))
    if kind == "nested_field_ref":
        parts = [next(entries) for _ in range(int(value))]
        return FieldRef(tuple(name for _, name in parts))
    if kind == "literal":
        return Scalar(batch.column(int(value))[0])
    if kind != "call":
        raise NotUnderstood
    terms: list[Tree] = []
    options = None
    for entry in entries:
        if entry[0] == "end":
            return Call(value, tuple(terms), options)
        if entry[0] == "options":
            options = batch.column(int(entry[1]))[0]
        else:
            terms.append(_tree(entries, entry, batch, depth + 1))
    raise NotUnderstood


def top_level_names(tree: Tree) -> tuple[str, ...]:
    """The top-level columns that an expression names, in order of appearance."""
    return tuple(dict.fromkeys(_names(tree)))


def _names(tree: Tree) -> Iterator[str]:
    if isinstance(tree, FieldRef):
        yield tree.path[0]
    elif isinstance(tree, Call):
        for term in tree.terms:
            yield from _names(term)


def spell(tree: Tree) -> str:
    """A tree as text for people."""
    if isinstance(tree, FieldRef):
        return ".".join(tree.path)
    if isinstance(tree, Scalar):
        return str(tree.value)
    return f"{tree.name}({', '.join(spell(term) for term in tree.terms)})"


def compute(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """The value of an expression on each row of a table that has at least one column.

    Raises:
        pa.ArrowException: the expression does not fit the table.
    """
    # Imported here: this loads Arrow's dataset module, which other conditions do not need.
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    values = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"]), [rows])
    # One thread keeps the rows in order.
    return values.to_table(use_threads=False).column(0)
