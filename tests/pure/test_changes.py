"""Changes of a schema, against a model of nested dictionaries."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.schema.changes import (
    AddColumn,
    DropColumn,
    Facts,
    PromoteColumn,
    RenameColumn,
    ReorderColumns,
    SetComment,
    SetNullable,
    apply_all,
    renamed,
)
from lakehouse_source.schema.fields import children, field_id, leaves, max_id
from lakehouse_source.schema.merge import initial
from lakehouse_source.schema.paths import find
from lakehouse_source.schema.spark_metadata import comments

START = initial(
    pa.schema(
        [
            pa.field("a", pa.int32(), False),
            pa.field("S", pa.struct([("a", pa.int32()), ("t", pa.struct([("b", pa.string())]))])),
            pa.field("l", pa.list_(pa.struct([("a", pa.int32()), ("e", pa.date32())]))),
            pa.field("m", pa.map_(pa.string(), pa.struct([("v", pa.float32())]))),
            pa.field("n", pa.list_(pa.list_(pa.int8()))),
        ]
    )
)


def facts(schema: pa.Schema = START, **more: Any) -> Facts:
    return Facts(count(max_id(schema) + 1), **more)


def changed(change: Any, schema: pa.Schema = START, **more: Any) -> pa.Schema:
    return apply_all(schema, [change], facts(schema, **more))[0]


def ids(schema: pa.Schema) -> dict[tuple[str, ...], tuple[int | None, str]]:
    """Every field's id and, of leaves, the type, by its path in the type that Arrow gives."""
    found = {}

    def walk(fields: Any, above: tuple[str, ...]) -> None:
        for one in fields:
            below = children(one.type)
            found[(*above, one.name)] = (field_id(one), "" if below else str(one.type))
            walk(below, (*above, one.name))

    walk(schema, ())
    return found


# The model: a struct is a dictionary from names to [id, content] in order, a leaf a text.


def model(fields: Any) -> dict[str, list[Any]]:
    return {
        one.name: [
            field_id(one), model(list(one.type)) if pa.types.is_struct(one.type) else str(one.type)
        ]
        for one in fields
    }  # fmt: skip


@given(seed=st.integers(0, 2**32))
def test_random_changes_of_structs_do_what_they_do_to_dictionaries(seed: int) -> None:
    chance = random.Random(seed)
    schema = initial(
        pa.schema([("a", pa.int32()), ("s", pa.struct([("a", pa.int32()), ("b", pa.int8())]))])
    )
    expected = model(schema)
    given = facts(schema)
    next_id = max_id(schema) + 1
    for _ in range(15):
        structs = [name for name, (_id, content) in expected.items() if isinstance(content, dict)]
        inside = chance.choice(structs) if structs and chance.random() < 0.5 else None
        level = expected if inside is None else expected[inside][1]
        above = "" if inside is None else inside + "."
        name = chance.choice(list(level))
        spelled = above + (name.upper() if chance.random() < 0.2 else name)
        free = [one for one in "abcdef" if one not in level]
        what = chance.choice(["add", "rename", "drop", "promote", "reorder"])
        if what == "add" and free:
            change: Any = AddColumn(above + free[0], pa.int8())
            level[free[0]] = [next_id, "int8"]
            next_id += 1
        elif what == "rename" and free:
            change = RenameColumn(spelled, free[-1])
            entries = [(free[-1] if key == name else key, value) for key, value in level.items()]
            level.clear()
            level.update(entries)
        elif what == "drop" and len(level) > 1:
            change = DropColumn(spelled)
            del level[name]
        elif what == "promote" and level[name][1] in ("int8", "int32"):
            change = PromoteColumn(spelled, pa.int64())
            level[name][1] = "int64"
        elif what == "reorder":
            order = list(level)
            chance.shuffle(order)
            first = order[: chance.randint(1, len(order))]
            change = ReorderColumns(tuple(above + one for one in first))
            rest = [one for one in level if one not in first]
            entries = [(one, level[one]) for one in [*first, *rest]]
            level.clear()
            level.update(entries)
        else:
            continue
        schema = change.apply(schema, given)[0]
        assert model(schema) == expected
        assert [*model(schema)] == [*expected]
    assert len({leaf.id for leaf in leaves(schema)}) == len(list(leaves(schema)))


def test_a_change_leaves_every_other_field_as_it_is() -> None:
    after = changed(RenameColumn("m.value.v", "w"))
    assert after.field("a").equals(START.field("a"), check_metadata=True)
    before, now = ids(START), ids(after)
    path = next(one for one in before if one[0] == "m" and one[-1] == "v")
    before[(*path[:-1], "w")] = before.pop(path)
    assert now == before
    assert not after.field("a").nullable


@pytest.mark.parametrize(
    ("path", "id_of"),
    [
        ("s.T.B", "b"),
        (("S", "t", "b"), "b"),
        ("l.element.e", "e"),
        ("l.item.e", "e"),
        ("m.value.v", "v"),
    ],
)
def test_paths_name_what_is_in_structs_lists_and_maps(path: Any, id_of: str) -> None:
    schema = START
    place = find(schema, path)
    inner = schema.field(place[0])
    for position in place[1:]:
        inner = children(inner.type)[position]
    assert inner.name == id_of


def test_an_added_struct_gets_new_ids_everywhere_and_stays_as_declared() -> None:
    type_ = pa.struct([("x", pa.large_string()), ("y", pa.list_(pa.int8()))])
    after = changed(AddColumn("l.element.new", type_, "text"))
    added = after.field("l").type.value_type.field("new")
    assert added.nullable
    assert added.type.field("x").type == pa.string()
    fresh = {path: id for path, (id, _type) in ids(after).items() if path not in ids(START)}
    highest = max_id(START)
    assert sorted(id for id in fresh.values() if id is not None) == [
        highest + i for i in range(1, len(fresh) + 1)
    ]
    assert comments(after) == {"l.element.new": "text"}
    assert comments(changed(SetComment("l.element.new", None), after)) == {}


def test_nested_lists_keep_their_ids_when_an_element_is_promoted() -> None:
    after = changed(PromoteColumn("n.element.element", pa.int16()))
    assert after.field("n").type.value_type.value_type == pa.int16()
    assert [id for id, _ in ids(after).values()] == [id for id, _ in ids(START).values()]


def test_names_follow_the_ids_of_their_fields() -> None:
    after = changed(RenameColumn("S", "r"))
    after = changed(RenameColumn("r.t", "u"), after)
    after = changed(RenameColumn("a", "S"), after)
    after = changed(DropColumn("n"), after)
    assert renamed(["s.t.b", "A", "n", "S"], START, after) == ("r.u.b", "S", "n", "r")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (SetNullable("m.key", True), "is the key of a map"),
        (SetNullable("l.element.a", False), "cannot become NOT NULL"),
        (SetNullable("m", False), "cannot become NOT NULL"),
        (PromoteColumn("l.element.e", pa.timestamp("us")), "do not show that every value fits"),
        (PromoteColumn("a", pa.float32()), "not every value survives"),
        (PromoteColumn("a", pa.bool_()), "not every value survives"),
        (DropColumn("m.value.v"), "is the only field"),
        (DropColumn("m.value"), "is a part of a list or map"),
        (AddColumn("x.y", pa.int8()), "'x' is not in the dataset"),
        (AddColumn("x", pa.struct([("a", pa.int8()), ("A", pa.int8())])), "collides"),
        (ReorderColumns(("a",), "a"), "is named twice"),
    ],
)
def test_refused(change: Any, message: str) -> None:
    more: dict[str, Any] = {}
    if isinstance(change, SetNullable):
        more["holds_no_null"] = lambda _field: True
    with pytest.raises(lake.SchemaMismatchError, match=message):
        changed(change, **more)
