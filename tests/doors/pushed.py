"""Conditions as the planner extension hands them on."""

from __future__ import annotations

from typing import Any

from lakehouse_source.spark.protocol.vocabulary import Key, Node


def call(name: str, *terms: dict[str, Any]) -> dict[str, Any]:
    """A condition."""
    return {Key.OP: Node.CALL, Key.TYPE: "boolean", Key.NAME: name, Key.TERMS: [*terms]}


def column(name: str, type_: str) -> dict[str, Any]:
    return {Key.OP: Node.COLUMN, Key.TYPE: type_, Key.COLUMN: [name]}


def literal(type_: str, *values: str, null: bool = False) -> dict[str, Any]:
    """One value, or those of an IN."""
    return {Key.OP: Node.LITERAL, Key.TYPE: type_, Key.VALUES: [*values], Key.NULL: null}


def comparison(name: str, op: str, type_: str, *values: str, null: bool = False) -> dict[str, Any]:
    """A condition on one column."""
    return call(op, column(name, type_), literal(type_, *values, null=null))
