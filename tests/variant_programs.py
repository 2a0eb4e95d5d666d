"""Random programs of changes to rows with VARIANT; the model is a dict of Python objects.

Conditions and assignments are on paths. After each statement: the rows, an older version, the
change feed, and the rows of a condition.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import lakehouse_source as lake

MISSING = object()
NUMBERS = (0, 1, 2, 3, 7, "7", "x", 1.5, None, MISSING)
TEXTS = ("a", "b", "", 1, None, MISSING, MISSING)
Rows = dict[int, Any]


def at(document: Any, *path: str) -> Any:
    for name in path:
        document = document.get(name, MISSING) if isinstance(document, dict) else MISSING
    return document


def number(document: Any) -> int | None:
    """What `try_variant_get(v, '$.n', 'int')` gives."""
    found = at(document, "n")
    if isinstance(found, str):
        return int(found) if found.isdigit() else None
    return int(found) if isinstance(found, (int, float)) else None


def text(document: Any) -> str | None:
    """What `v:s.t::string` gives."""
    found = at(document, "s", "t")
    return None if found is MISSING or found is None else str(found)


N, T = "try_variant_get(v, '$.n', 'int')", "v:s.t::string"
# A condition in SQL, and for which ids and documents it is TRUE.
CONDITIONS: tuple[tuple[str, Callable[[int, Any], bool]], ...] = (
    (f"{N} = 7", lambda _, d: number(d) == 7),
    (f"{N} > 1", lambda _, d: (number(d) or 0) > 1),
    (f"{N} IN (0, 3)", lambda _, d: number(d) in (0, 3)),
    (f"{N} IS NULL", lambda _, d: number(d) is None),
    (f"{T} = 'a'", lambda _, d: text(d) == "a"),
    (f"{T} >= 'a' AND {N} < 3", lambda _, d: (text(d) or "") >= "a" and (number(d) or 0) < 3
     and number(d) is not None),
    (f"{N} = 1 OR {T} = ''", lambda _, d: number(d) == 1 or text(d) == ""),
    ("is_variant_null(v:n)", lambda _, d: at(d, "n") is None),
    ("v:s IS NULL", lambda _, d: at(d, "s") is MISSING),
    ("v IS NULL", lambda _, d: d is None),
    (f"{N} = id % 4", lambda id, d: number(d) == id % 4),
)  # fmt: skip
_N, _T = pc.field("v", "n").cast("int32", safe=False), pc.field("v", "s", "t").cast("string")
# Some of the conditions as Arrow has them.
IN_ARROW = {
    f"{N} = 7": _N == 7,
    f"{N} > 1": _N > 1,
    f"{N} IN (0, 3)": _N.isin([0, 3]),
    f"{N} IS NULL": _N.is_null(),
    f"{T} = 'a'": _T == "a",
    f"{T} >= 'a' AND {N} < 3": (_T >= "a") & (_N < 3),
    f"{N} = 1 OR {T} = ''": (_N == 1) | (_T == ""),
    "v:s IS NULL": pc.field("v", "s").is_null(),
    "v IS NULL": pc.field("v").is_null(),
}
# An assignment of `v` in SQL, and the new document.
UPDATES: tuple[tuple[str, Callable[[int, Any], Any]], ...] = (
    ("NULL", lambda _, d: None),
    ("parse_json(concat('{\"n\": ', id, '}'))", lambda id, d: {"n": id}),
    ('parse_json(\'{"s": {"t": "b"}}\')', lambda _, d: {"s": {"t": "b"}}),
    ("parse_json('{\"n\": null}')", lambda _, d: {"n": None}),
    (f"CASE WHEN {N} = 7 THEN NULL ELSE v END", lambda _, d: None if number(d) == 7 else d),
    ("coalesce(v, parse_json('{}'))", lambda _, d: {} if d is None else d),
)
PATHS = (["v:n"], ["v:n", "v:s.t"], ["v:s"], ["v:s.t", "v:e"], [])


class Program:
    """A dataset with columns `id` and `v`, and the model that must always have the same rows."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.path = folder / "data"
        self.rows: Rows = {}
        self.versions: dict[int, Rows] = {}
        self.last = 0
        self.steps: list[str] = []
        layout = {"variant_paths": self.draw.choice(PATHS), "row_group_rows": 3}
        lake.write_dataset(self.table(self.documents(8)), self.path, **layout)
        self.check()

    def documents(self, count: int) -> Rows:
        found = {}
        for _ in range(count):
            self.last += 1
            n, t = self.draw.choice(NUMBERS), self.draw.choice(TEXTS)
            document: Any = {} if n is MISSING else {"n": n}
            document |= {} if t is MISSING else {"s": {"t": t}}
            document |= {"e": [self.last]} if self.draw.random() < 0.3 else {}
            found[self.last] = None if self.draw.random() < 0.1 else document
        self.rows |= found
        return found

    def table(self, rows: Rows) -> dict[str, Any]:
        return {"id": [*rows], "v": lake.variant([*rows.values()])}

    def texts(self, rows: Rows) -> list[tuple[int, str | None]]:
        return [(id, None if d is None else json.dumps(d)) for id, d in rows.items()]

    # --- statements

    def insert(self) -> None:
        rows = self.table(self.documents(self.draw.randint(1, 6)))
        lake.write_dataset(rows, self.path)

    def delete(self) -> None:
        condition, is_true = self.draw.choice(CONDITIONS)
        self.steps[-1] += f" {condition}"
        self.run_delete(condition)
        self.rows = {id: d for id, d in self.rows.items() if not is_true(id, d)}

    def update(self) -> None:
        condition, is_true = self.draw.choice(CONDITIONS)
        value, made = self.draw.choice(UPDATES)
        self.steps[-1] += f" {value} WHERE {condition}"
        self.run_update(value, condition)
        self.rows = {id: made(id, d) if is_true(id, d) else d for id, d in self.rows.items()}

    def merge(self) -> None:
        """Rows of the source replace those with their ids where a path says so."""
        before = dict(self.rows)
        source = self.documents(self.draw.randint(0, 4))
        known = self.draw.sample([*before], min(len(before), self.draw.randint(0, 4)))
        given = {**source, **{id: self.draw.choice([None, {"n": 7}, {"n": 2}]) for id in known}}
        self.run_merge(given)
        kept = {id: d for id, d in given.items() if id in source or number(d) == 7}
        self.rows = before | kept

    def restore(self) -> None:
        version = self.draw.choice([*self.versions])
        self.steps[-1] += f" {version}"
        lake.open_dataset(self.path).restore(version)
        self.rows = dict(self.versions[version])

    def compact(self) -> None:
        lake.open_dataset(self.path).compact()

    def name_paths(self) -> None:
        paths = self.draw.choice(PATHS)
        self.steps[-1] += f" {paths}"
        lake.open_dataset(self.path).set_properties(
            variant_paths=paths, cluster_by=None, sort_by=None
        )

    def cluster(self) -> None:
        """Rows are ordered by paths that files have, from now on and perhaps at once."""
        dataset = lake.open_dataset(self.path)
        known = dataset.properties["variant_paths"]
        by = self.draw.sample(known, self.draw.randint(0, len(known))) or ["id"]
        chosen = self.draw.choice(["cluster_by", "cluster_by", "sort_by"])
        self.steps[-1] += f" {chosen} {by}"
        dataset.set_properties(**{"cluster_by": None, "sort_by": None, chosen: by})
        if chosen == "cluster_by":
            lake.open_dataset(self.path).cluster(full=self.draw.random() < 0.5)

    # --- how a statement is carried out

    def run_delete(self, condition: str) -> None:
        given = IN_ARROW.get(condition, condition) if self.draw.random() < 0.5 else condition
        lake.open_dataset(self.path).delete(given)

    def run_update(self, value: str, condition: str) -> None:
        lake.open_dataset(self.path).update({"v": value}, condition)

    def run_merge(self, given: Rows) -> None:
        merge = lake.open_dataset(self.path).merge(self.table(given), "target.id = source.id")
        merge = merge.when_matched_update_all("try_variant_get(source.v, '$.n', 'int') = 7")
        merge.when_not_matched_insert_all().execute()

    # --- running and checking

    def run(self, steps: int) -> None:
        choices = [self.insert, self.delete, self.update, self.merge]
        for _ in range(steps):
            step = self.draw.choice(
                [
                    *choices,
                    *choices,
                    self.restore,
                    self.compact,
                    self.name_paths,
                    self.cluster,
                    self.cluster,
                ]
            )
            self.steps.append(step.__name__)
            step()
            self.check()

    def check(self) -> None:
        dataset = lake.open_dataset(self.path)
        assert shown(dataset.scan().to_table()) == shown(self.rows), self.steps
        condition, is_true = self.draw.choice(CONDITIONS)
        wanted = sorted(id for id, d in self.rows.items() if is_true(id, d))
        self.check_condition(dataset, condition, wanted)
        for version in [*self.versions]:
            if version == dataset.version:
                break
            if self.draw.random() < 0.2:
                then = dataset.scan(version=version).to_table()
                assert shown(then) == shown(self.versions[version]), self.steps
                self.check_feed(dataset, version)
        self.versions[dataset.version] = dict(self.rows)

    def check_condition(self, dataset: lake.Dataset, condition: str, wanted: list[int]) -> None:
        for given in (condition, IN_ARROW.get(condition, condition)):
            found = dataset.scan(given, columns=["id"]).to_table()["id"].to_pylist()
            assert sorted(found) == wanted, (self.steps, given)

    def check_feed(self, dataset: lake.Dataset, version: int) -> None:
        """The changes since a version make the rows of now of its rows."""
        changes = dataset.changes(version + 1, net=True).to_table()
        made = shown(self.versions[version])
        for kinds, change in (
            (("delete", "update_preimage"), made.remove),
            (("insert", "update_postimage"), made.append),
        ):
            for row in shown_rows(changes):
                if row[0] in kinds:
                    change(row[1:])
        assert sorted(made) == shown(self.rows), self.steps


def shown(rows: Any) -> list[tuple[Any, ...]]:
    """Rows as ids and texts, in order."""
    if isinstance(rows, dict):
        texts = (None if d is None else json.dumps(d, sort_keys=True) for d in rows.values())
        return sorted(zip(rows, map(str, texts)))
    return sorted(zip(rows["id"].to_pylist(), _texts(rows)))


def shown_rows(changes: Any) -> list[tuple[Any, ...]]:
    kinds = changes["_change_type"].to_pylist()
    return list(zip(kinds, changes["id"].to_pylist(), _texts(changes)))


def _texts(rows: Any) -> list[str]:
    given = (value.to_json() for value in rows["v"])
    return [str(one and json.dumps(json.loads(one), sort_keys=True)) for one in given]
