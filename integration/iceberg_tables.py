"""The tables that integration/iceberg_clients.py shows to other engines, and what is asked of them.

Most are those of tests/verbs/test_iceberg.py; plake's own scan is the answer.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakehouse_source as lake
from lakehouse_source.storage import local_path
from tests.verbs.test_iceberg import TABLES as TESTED

FILES = 10_000


def plain(path: str) -> lake.Dataset:
    for start in (0, 100, 200):
        some = range(start, start + 100)
        lake.write_dataset({"a": some, "b": [f"t{n % 7}" for n in some], "c": [0.5] * 100}, path)
    return lake.open_dataset(path)


def nested(path: str) -> lake.Dataset:
    rows = {
        "id": [1, 2, 3],
        "s": [{"x": n, "y": {"z": f"z{n}"}} for n in range(3)],
        "l": pa.array([[1, None], [], [3]], pa.list_(pa.int64())),
        "ls": [[{"q": 1}, {"q": 2}], [], [{"q": None}]],
        "m": pa.array([[("k", 1)], [], [("a", 2), ("b", None)]], pa.map_(pa.string(), pa.int64())),
    }
    lake.write_dataset(pa.table(rows), path)
    lake.write_dataset(pa.table(rows), path)
    return lake.open_dataset(path)


def promoted(path: str) -> lake.Dataset:
    old = {"i": pa.int32(), "f": pa.float32(), "d": pa.decimal128(9, 2)}
    new = {"i": pa.int64(), "f": pa.float64(), "d": pa.decimal128(18, 2)}
    rows: dict[str, Any] = {"i": [1, None], "f": [0.5, None], "d": [Decimal("1.25"), None]}
    lake.write_dataset(pa.table(rows, pa.schema(list(old.items()))), path)
    dataset = lake.open_dataset(path)
    for name, type_ in new.items():
        dataset.promote_column(name, type_)
    rows = {"i": [2**40], "f": [0.1], "d": [Decimal("1234567890.12")]}
    lake.write_dataset(pa.table(rows, pa.schema(list(new.items()))), path)
    return dataset.refresh()


def references(path: str) -> lake.Dataset:
    """Tag `first` is version 2; branch `work` has a row of its own."""
    dataset = plain(path)
    dataset.tag("first", version=2)
    dataset.branch("work")
    rows = {"a": [1000], "b": ["on the branch"], "c": [1.0]}
    lake.write_dataset(rows, f"{path}#branch=work")
    dataset.delete("a = 5")
    lake.write_dataset({"a": [2000], "b": ["after"], "c": [2.0]}, path)
    dataset.refresh().compact()
    return dataset.refresh()


def many_files(path: str) -> lake.Dataset:
    rows = {"a": range(FILES), "b": [f"t{n % 7}" for n in range(FILES)]}
    lake.write_dataset(rows, path, target_file_size_bytes=1, row_group_rows=1)
    dataset = lake.open_dataset(path)
    assert sum(1 for _ in dataset.files()) == FILES
    return dataset


def added_with_ids(path: str) -> lake.Dataset:
    """A file with plake's own field ids, which lay elsewhere, after a column was renamed."""
    lake.write_dataset({"a": [1, 2], "b": ["x", "y"]}, path)
    dataset = lake.open_dataset(path)
    (file,) = dataset.files()
    shutil.copy(os.path.join(path, file.path), os.path.join(path, "copied.parquet"))
    dataset.add_files(os.path.join(path, "copied.parquet"))
    dataset.rename_column("b", "renamed")
    return dataset.refresh()


def lacking_default(path: str) -> lake.Dataset:
    lake.write_dataset({"a": [1]}, path)
    dataset = lake.open_dataset(path)
    dataset.add_column("c", pa.int64(), default=7)
    return dataset


MAKERS: dict[str, Callable[[str], lake.Dataset]] = {
    "plain": plain,
    "nested": nested,
    "promoted": promoted,
    "added files with ids": added_with_ids,
    "references": references,
    "10,000 files": many_files,
    **TESTED,
}

Question = dict[str, Any]


def _where(*conditions: str) -> list[Question]:
    return [{"where": one} for one in conditions]


# Besides all rows. `where` is SQL, `columns` names, `snapshot` an id, `ref` a name with its id.
QUESTIONS: dict[str, list[Question]] = {
    "plain": [
        *_where("a >= 150 AND b = 't3'", "a < 0", "b = 't1' OR a = 299"),
        {"columns": ["c", "a"], "where": "b = 't2'"},
        {"columns": ["b"]},
        {"snapshot": 1},
        {"snapshot": 2, "where": "a > 150", "columns": ["a"]},
    ],
    "nested": [*_where("id = 2"), {"columns": ["id", "l"]}, {"snapshot": 1}],
    "promoted": [*_where("i = 1", "i > 5", "f = 0.5"), {"columns": ["d"]}],
    "added files with ids": [*_where("renamed = 'y'"), {"columns": ["renamed"]}],
    "10,000 files": _where("a = 7777", "a < 3"),
    "all types": [*_where("id = 2", "i is null"), {"columns": ["id", "s"]}],
    "vectors": [
        *_where("id > 1005", "v = 2"),
        {"columns": ["v"]},
        {"snapshot": 2},
        {"snapshot": 3, "where": "id < 20"},
    ],
    "evolved": [*_where("a > 5", "c is null"), {"columns": ["c"]}, {"snapshot": 1}],
    "added files": [*_where("b = 2"), {"columns": ["b"]}],
    "by int": [*_where("p = 2", "p is null", "v = 1"), {"columns": ["v"]}],
    "by string": [*_where("p = ''"), {"columns": ["p"]}],
    "by bool": _where("p = true"),
}


def make(folder: Path) -> list[dict[str, Any]]:
    """Write the tables and export them; what is asked of each, and plake's answers."""
    made = []
    for number, (name, maker) in enumerate(MAKERS.items()):
        dataset = maker(str(folder / f"t{number}"))
        path = dataset.export_iceberg(newest_versions=100)
        questions = [{}, *QUESTIONS.get(name, [])]
        wanted = [(one, _answer(dataset, one)) for one in questions]
        if name == "plain":
            wanted.append(_of_a_time(dataset, path))
        if name == "references":
            wanted += list(_of_references(dataset, path))
        root = local_path(dataset.uri)
        made.append({"name": name, "path": path, "root": root, "wanted": wanted})
    return made


def refusals(folder: Path) -> int:
    """How many tables that clients would read wrongly are not refused by their column."""
    dataset = lacking_default(str(folder / "refused"))
    try:
        dataset.export_iceberg()
    except lake.IcebergUnsupportedError as error:
        print(json.dumps(["plake", "a default that older files lack", str(error)]))
        return int("'c'" not in str(error))
    return 1


def _answer(dataset: lake.Dataset, question: Question) -> pa.Table:
    some = {"columns": question["columns"]} if "columns" in question else {}
    version = question.get("snapshot")
    return dataset.scan(question.get("where"), version=version, **some).to_table()


def _of_a_time(dataset: lake.Dataset, path: str) -> tuple[Question, pa.Table]:
    """Version 2 by its time; engines that cannot look up a time read it by its id."""
    snapshots = json.loads(Path(path).read_text())["snapshots"]
    (second,) = (one for one in snapshots if one["snapshot-id"] == 2)
    question = {"time": second["timestamp-ms"], "snapshot": 2}
    return question, dataset.scan(version=2).to_table()


def _of_references(dataset: lake.Dataset, path: str) -> Any:
    refs = json.loads(Path(path).read_text())["refs"]
    work = lake.open_dataset(f"{dataset.uri}#branch=work")
    for name, answer in (
        ("first", dataset.scan(version=2).to_table()),
        ("work", work.scan().to_table()),
        ("main", dataset.scan().to_table()),
    ):
        yield {"ref": name, "snapshot": refs[name]["snapshot-id"]}, answer
    yield {"snapshot": 4}, dataset.scan(version=4).to_table()
