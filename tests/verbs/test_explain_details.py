"""`explain(details=True)` and the pages: what decided, compared with the rows of the files."""

from __future__ import annotations

import pickle
import random
import re
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError, StorageError, VersionNotFoundError
from lakehouse_source.read.plan import Pruning
from tests.verbs.conftest import catalog_of

pytestmark = pytest.mark.slow

catalog = catalog_of("postgres", "duckdb")

GROUP = 20_000
# Each condition with its parts as Arrow sees them, by the text that plake has for them.
PARTS = {
    "p = 1": pc.field("p") == 1,
    "v < 5000": pc.field("v") < 5000,
    "name = 'k7'": pc.field("name") == "k7",
    "v IN (-5, 41000)": pc.field("v").isin([-5, 41000]),
    "w > 0.5": pc.field("w") > 0.5,
}


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    """Two partitions, a file of three row groups in each; the last one and a row are deleted."""
    rng = random.Random(3)
    for part in (1, 2):
        values = range((part - 1) * 70_000, (part - 1) * 70_000 + 3 * GROUP)
        rows = pa.table(
            {
                "p": [part] * len(values),
                "v": pa.array(values, pa.int64()),
                "name": [f"k{2 * rng.randrange(5000)}" for _ in values],
                "w": [rng.random() if n % 9 else None for n in values],
            }
        )
        lake.write_dataset(rows, tmp_path / "d", partition_by="p", row_group_rows=GROUP)
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.set_properties(rewrite_threshold=1.0)
    dataset.delete(f"v >= {70_000 + 2 * GROUP} OR v = 7")
    return dataset


def rows_of(dataset: lake.Dataset, path: str, group: int) -> pa.Table:
    """The rows of a row group that are not deleted, as PyArrow reads them."""
    file = Path(dataset.uri.removeprefix("file://"), path)
    table = pq.ParquetFile(file).read_row_group(group)
    part = int(re.search(r"p=(\d)", path)[1])  # type: ignore[index]
    table = table.append_column("p", pa.array([part] * table.num_rows))
    return table.filter((pc.field("v") < 70_000 + 2 * GROUP) & (pc.field("v") != 7))


CONDITIONS = {
    "p = 1": {"partition"},
    "v < 5000": {"statistics"},
    "name = 'k7'": {"deletion vector"},
    "p = 1 AND name = 'k7'": {"partition"},
    "w > 0.5": {"deletion vector"},
    "v IN (-5, 41000) AND w > 0.5": {"statistics"},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_decided_is_true_of_the_rows(dataset: lake.Dataset, condition: str) -> None:
    pruning = dataset.scan(condition).explain(details=True)
    assert pruning.details is not None
    found = pruning.details.table.to_pylist()
    assert len(found) == pruning.row_groups_total == 6
    in_files = ("bloom filter", "page index", "deletion vector")
    for row in found:
        rows = rows_of(dataset, row["file_path"], row["row_group"])
        assert row["row_count"] == GROUP
        matching = rows
        for part in condition.split(" AND "):
            matching = matching.filter(PARTS[part])
        assert matching.num_rows <= row["rows_left"] <= rows.num_rows
        if row["is_kept"]:
            left = row["condition"].split(" AND ") if row["condition"] else []
            rest = [part for part in condition.split(" AND ") if spelled(part) not in left]
            assert (row["decided_by"] == "statistics") == (not left)
            for part in rest:  # what rows do not decide holds on all of them
                assert rows.filter(PARTS[part]).num_rows == rows.num_rows
            continue
        assert row["rows_left"] == 0
        if row["decided_by"] == "deletion vector":
            assert rows.num_rows == 0
            continue
        (part,) = (one for one in condition.split(" AND ") if spelled(one) == row["condition"])
        assert rows.filter(PARTS[part]).num_rows == 0
        for name, bounds in row["bounds"]:
            values = pq.ParquetFile(
                Path(dataset.uri.removeprefix("file://"), row["file_path"])
            ).read_row_group(row["row_group"])
            if name in values.column_names:
                low, high = pc.min_max(values[name]).values()
                assert (bounds["lower"], bounds["upper"]) == (str(low), str(high))
                assert bounds["null_count"] == values[name].null_count
    read = sum(row["is_kept"] or row["decided_by"] in in_files for row in found)
    assert read == pruning.row_groups_read
    by_partition = {row["file_path"] for row in found if row["decided_by"] == "partition"}
    assert len(by_partition) == pruning.files_pruned_by_partition
    decided = {row["decided_by"] for row in found if not row["is_kept"]}
    assert decided == CONDITIONS[condition]


def test_a_bloom_filter_rules_out_a_value_that_is_within_the_bounds(tmp_path: Path) -> None:
    names = [f"k{2 * number:05}" for number in range(300)]
    lake.write_dataset({"name": names}, tmp_path / "d", bloom_filter_columns=["name"])
    scan = lake.open_dataset(tmp_path / "d").scan("name = 'k00007' AND name IS NOT NULL")
    pruning = scan.explain(details=True)
    assert pruning.details is not None
    (row,) = pruning.details.table.to_pylist()
    assert (row["decided_by"], row["condition"]) == ("bloom filter", "name = 'k00007'")
    assert (row["is_kept"], row["rows_left"], pruning.row_groups_read) == (False, 0, 1)
    bounds = {"lower": "k00000", "upper": "k00598", "null_count": 0, "may_contain_nan": False}
    assert row["bounds"] == [("name", bounds)]
    assert scan.count_rows() == 0


def spelled(part: str) -> str:
    """A part as plake writes it."""
    return {"w > 0.5": "w > 0.5D"}.get(part, part)


def test_the_page_index_rules_out_a_row_group_between_whose_pages_a_value_is(
    tmp_path: Path,
) -> None:
    count = 16_384  # plake's pages end after 8,192 rows
    values = [*range(count), *range(10**6, 10**6 + count)]
    lake.write_dataset({"v": values}, tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    pruning = dataset.scan("v = 500000 AND v IS NOT NULL").explain(details=True)
    assert pruning.details is not None
    (row,) = pruning.details.table.to_pylist()
    assert (row["decided_by"], row["condition"]) == ("page index", "v = 500000")
    assert (pruning.row_groups_read, pruning.rows_read) == (1, 2 * count)
    near = dataset.scan("v = 77").explain(details=True)
    assert near.details is not None
    assert near.details.table["rows_left"].to_pylist() == [8192]
    both = dataset.scan("v < 1000000 AND v > 16383").explain(details=True)
    assert both.details is not None
    (row,) = both.details.table.to_pylist()
    assert (row["decided_by"], row["condition"]) == ("page index", "v < 1000000 AND v > 16383")


def test_lists_that_have_no_value_in_common_between_them_are_told_together(
    tmp_path: Path,
) -> None:
    """No part alone rules the file out, and both together do."""
    lake.write_dataset({"v": [0, 6]}, tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    pruning = dataset.scan("v IN (1, 9) AND v IN (5, 9)").explain(details=True)
    assert pruning.details is not None
    (row,) = pruning.details.table.to_pylist()
    assert row["is_kept"] == bool(pruning.files_read)
    if not row["is_kept"]:
        assert row["condition"] == "v IN (1, 9) AND v IN (5, 9)"


def test_the_text_has_the_reasons_that_most_rows_have(dataset: lake.Dataset) -> None:
    text = str(dataset.scan("p = 1 AND v < 5000").explain(details=True))
    first, second, third = text.partition("why:\n")[2].splitlines()
    assert first.startswith("  pruned by partition p = 1: 3 row groups of 1 file, 60,000 rows; ")
    assert first.endswith("[0] has p 2")
    assert second.startswith("  pruned by statistics v < 5000: 2 row groups of 1 file")
    assert second.endswith("has v from 20000 to 39999")
    assert third.startswith("  kept v < 5000: 1 row group of 1 file")
    assert "why" not in str(dataset.scan("p = 1").explain())


def test_a_missing_file_is_an_error_of_details_only(dataset: lake.Dataset) -> None:
    for file in dataset.files():
        Path(dataset.uri.removeprefix("file://"), file.path).unlink()
    scan = dataset.scan("name = 'k7'")
    assert scan.explain().files_read == 2
    assert "<svg" in scan.explain()._repr_html_()
    with pytest.raises(StorageError):
        scan.explain(details=True)
    with pytest.raises(InvalidOptionError):
        scan.explain(details="yes")  # type: ignore[arg-type]


# --- pages


def figures(path: Path) -> dict[str, dict[str, list[str]]]:
    """The tables of a page: by figure, by the first cell of a row, the other cells."""
    root = ET.fromstring(path.read_text().removeprefix("<!DOCTYPE html>\n"))
    found = {}
    for figure in (one for one in root.iter() if one.tag.endswith("}figure")):
        cells = [
            ["".join(cell.itertext()) for cell in row]
            for row in figure.iter()
            if row.tag.endswith("}tr")
        ]
        title = next("".join(one.itertext()) for one in figure if one.tag.endswith("}h2"))
        found[title] = {first: others for first, *others in cells[1:]}
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("condition", [*CONDITIONS, None])
def test_a_page_has_the_figures_of_explain(
    dataset: lake.Dataset, tmp_path: Path, condition: str | None
) -> None:
    pruning = dataset.scan(condition).explain()
    pruning.to_html(tmp_path / "scan.html")
    tables = figures(tmp_path / "scan.html")
    for name in ("files", "row_groups", "rows", "bytes", "columns"):
        total, read, left_out = map(number, tables["What has to be read"][name.replace("_", " ")])
        assert total == getattr(pruning, f"{name}_total")
        assert read == getattr(pruning, f"{name}_read")
        assert left_out == total - read
    drawn = next(rows for title, rows in tables.items() if title.startswith("Files over"))
    reasons = [cells[-1] for cells in drawn.values()]
    assert len(reasons) == pruning.files_total
    assert sum(one.startswith("read") for one in reasons) == pruning.files_read
    by = {one: f"left out by {one}" for one in ("its partition", "statistics")}
    assert reasons.count(by["its partition"]) == pruning.files_pruned_by_partition
    assert reasons.count(by["statistics"]) == pruning.files_pruned_by_statistics
    sizes = [number(cell) for cells in tables["Sizes of files"].values() for cell in cells]
    assert sum(sizes) == pruning.files_total


def test_a_page_of_health_has_its_figures(dataset: lake.Dataset, tmp_path: Path) -> None:
    dataset.set_properties(cluster_by=["v"])
    report = dataset.health(["v", "name"])
    report.to_html(tmp_path / "health.html")
    tables = figures(tmp_path / "health.html")
    upkeep = tables["What upkeep would do"]
    assert {
        name: (cells[0] == "yes", number(cells[1]), number(cells[2]))
        for name, cells in upkeep.items()
    } == {one.action: (one.is_worth_it, one.files, one.size_bytes) for one in report.suggestions}
    small = sum(number(cells[0]) for cells in tables["Sizes of files"].values())
    assert small == report.small_files
    assert {version: [number(cell) for cell in cells[2:4]]
            for version, cells in tables["Versions"].items()} == {
        str(one.version): [one.summary["rows_added"], one.summary["rows_removed"]]
        for one in dataset.history()
    }  # fmt: skip
    assert "What a run of cluster would change" in tables


def test_the_page_shows_what_cluster_would_sort(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(12):
        lake.write_dataset({"v": [rng.randrange(1000) for _ in range(50)]}, tmp_path / "d",
                           **({} if _ else {"cluster_by": ["v"]}))  # fmt: skip
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.health().to_html(tmp_path / "health.html")
    tables = figures(tmp_path / "health.html")
    planned = dataset.cluster(dry_run=True)
    told = [cells[-1] for cells in tables["What a run of cluster would change"].values()]
    moved = sum(one.startswith("sorted") for one in told)
    assert moved == planned.files_removed > 0
    after = tables["Expected overlap after one run of cluster"]
    assert max(number(cells[1]) for cells in after.values()) == 12 - moved + 1


def test_every_catalog_and_a_branch_tell_the_same(tmp_path: Path, catalog: lake.Catalog) -> None:
    where = "p = 'a' AND v BETWEEN 3 AND 4"
    told = []
    for url in (catalog, None):
        uri = tmp_path / ("a" if url is None else "b") / "d"
        for start in range(0, 9, 3):
            rows = {"v": list(range(start, start + 3)), "p": ["a", "b", "a"]}
            lake.write_dataset(rows, uri, partition_by="p", catalog=url)
        opened = lake.open_dataset(uri, catalog=url)
        for dataset in (opened, opened.branch("side")):
            pruning = dataset.scan(where).explain(details=True)
            assert pruning.details is not None
            pruning.to_html(tmp_path / "scan.html")
            dataset.health("v").to_html(tmp_path / "health.html")
            drawn = [figures(tmp_path / name) for name in ("scan.html", "health.html")]
            told.append(
                (
                    [row[:6] for row in pruning.details.rows()],
                    drawn[0]["What has to be read"],
                    sorted(drawn[0]["Files over v"].values()),
                    sorted(drawn[1]["Files over v"].values()),
                )
            )
    assert told[0][1]["files"] == ["6", "1", "5"]
    assert all(one == told[0] for one in told)


def test_columns_of_any_type_are_drawn(tmp_path: Path) -> None:
    day = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
    columns = {
        "b": pa.array([True, False, None]),
        "i": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "u": pa.array([0, 2**64 - 1, None], pa.uint64()),
        "f": pa.array([float("nan"), float("-inf"), 1.5]),
        "d": pa.array([Decimal("-1.25"), Decimal("99999.99"), None], pa.decimal128(20, 2)),
        "t": pa.array([day, None, day + timedelta(days=900)], pa.timestamp("us", "UTC")),
        "n": pa.array([1, 2, 3], pa.timestamp("ns")),
        "day": pa.array([-800_000, 0, 2_900_000], pa.int32()).cast(pa.date32()),
        "clock": pa.array([0, 86_399_000_000, None], pa.time64("us")),
        "long": pa.array([1, -5, None], pa.duration("ms")),
        "x": pa.array([b"", b"\xff\x00", None], pa.binary()),
        "s": pa.array(["ä" * 40, "", "zz"]),
        "box": pa.array([{"v": 1}, {"v": None}, None], pa.struct([("v", pa.int32())])),
        "nothing": pa.array([None, None, None], pa.string()),
    }
    table = pa.table(columns)
    for start in range(3):
        lake.write_dataset(table.slice(start, 1), tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    names = [name for name in columns if name != "box"] + ["box.v"]
    dataset.health(names).to_html(tmp_path / "health.html")
    assert "Files over n" in figures(tmp_path / "health.html")
    for name in names:
        pruning = dataset.scan(f"`{name}` IS NOT NULL" if name != "box.v" else "box.v = 1")
        pruning.explain(details=True).to_html(tmp_path / "scan.html")
        tables = figures(tmp_path / "scan.html")
        assert f"Files over {name}" in tables
        valid = sum(one.is_valid for one in columns[name]) if name in columns else 1
        assert len(tables[f"Files over {name}"]) == valid


HOSTILE = "</title><script>alert(1)</script>\"'&\u202e"


def test_names_and_values_of_strangers_are_only_text(tmp_path: Path) -> None:
    uri = tmp_path / "d<b>&"
    rows = {HOSTILE: [f"{HOSTILE}{n}" for n in range(3)], "p": [HOSTILE, "<img>", None]}
    lake.write_dataset(rows, uri, partition_by="p", commit_metadata={"note": HOSTILE})
    dataset = lake.open_dataset(uri)
    found = [
        dataset.scan([(HOSTILE, ">", HOSTILE), ("p", "!=", "<img>")]).explain(details=True),
        dataset.health([HOSTILE]),
    ]
    for one in found:
        one.to_html(tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        figures(tmp_path / "page.html")
        for shown in (text, one._repr_html_()):
            assert "<script" not in shown
            assert "<img" not in shown
            assert "\u202e" not in shown


def test_a_notebook_shows_pictures_and_the_text_once_the_version_is_gone(tmp_path: Path) -> None:
    lake.write_dataset({"v": [1, 2]}, tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    pruning = dataset.scan("v = 1").explain()
    assert "<svg" in pruning._repr_html_()
    assert "<svg" in dataset.health()._repr_html_()
    lake.write_dataset({"v": [3]}, tmp_path / "d", mode="overwrite")
    assert "version 1" in pruning._repr_html_()  # still the version that was asked for
    dataset.refresh().expire_versions(keep_last=1)
    assert pruning._repr_html_().startswith("<pre>scan of ")
    with pytest.raises(VersionNotFoundError):
        pruning.to_html(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_is_pickled_does_not_know_the_catalog(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/secret.db"
    lake.write_dataset({"v": [1, 2]}, tmp_path / "d", catalog=url)
    dataset = lake.open_dataset(tmp_path / "d", catalog=url)
    answers: list[Any] = [dataset.scan("v = 1").explain(details=True), dataset.health()]
    for one in answers:
        pickled = pickle.dumps(one)
        assert b"secret.db" not in pickled
        again = pickle.loads(pickled)
        assert again == one
        assert again._repr_html_().startswith("<pre>")
        with pytest.raises(InvalidOptionError, match="call the method again"):
            again.to_html(tmp_path / "page.html")
    plain: Pruning = dataset.scan("v = 1").plan().pruning
    assert plain.draw is None


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    lake.write_dataset({"v": [1, 2]}, tmp_path / "d")
    pruning = lake.open_dataset(tmp_path / "d").scan("v = 1").explain()
    with pytest.raises(StorageError, match="cannot be written"):
        pruning.to_html(tmp_path / "no" / "page.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        pruning.to_html(tmp_path / "folder")
    assert {one.name for one in tmp_path.iterdir()} == {"d", "folder"}
    (tmp_path / "page.html").write_text("old")
    pruning.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
