"""Small tables of TPC-H's shape, drawn so that each of its queries finds rows.

The real generator is no dependency of the tests: `integration/tpch.py` uses it.
"""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

MONEY = pa.decimal128(15, 2)
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
# With the places of their regions.
NATIONS = (
    ("BRAZIL", 1), ("CANADA", 1), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("JAPAN", 2),
    ("SAUDI ARABIA", 4), ("KENYA", 0),
)  # fmt: skip
FIRST_DAY = date(1992, 1, 1)
PARTS, SUPPLIERS, CUSTOMERS, ORDERS = 120, 30, 100, 900


def tpch_tables(seed: int = 1) -> dict[str, pa.Table]:
    """The eight tables by their names."""
    draw = Random(seed)

    def money(low: int, high: int) -> Decimal:
        return Decimal(draw.randint(low * 100, high * 100)).scaleb(-2)

    def phone(nation: int) -> str:
        return f"{draw.choice((10 + nation, 13, 17, 18, 23, 29, 30, 31))}-{draw.randint(100, 999)}"

    def word() -> str:
        return draw.choice(("special", "requests", "Customer", "Complaints", "even", "deposits"))

    def text() -> str:
        return " ".join(word() for _ in range(6))

    brands = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
    types = ("ECONOMY ANODIZED STEEL", "LARGE BRUSHED BRASS", "PROMO PLATED TIN",
             "MEDIUM POLISHED COPPER")  # fmt: skip
    containers = ("SM CASE", "SM PKG", "MED BAG", "MED BOX", "LG CASE", "LG BOX")
    part = [
        {"p_partkey": n, "p_name": f"{draw.choice(('forest', 'green', 'red'))} {word()} green",
         "p_mfgr": "Manufacturer#1", "p_brand": brands[n % 4], "p_type": draw.choice(types),
         "p_size": draw.choice((3, 9, 14, 15, 19, 23, 36, 45, 49)),
         "p_container": draw.choice(containers), "p_retailprice": money(900, 2000)}
        for n in range(PARTS)
    ]  # fmt: skip
    supplier = [
        {"s_suppkey": n, "s_name": f"Supplier#{n}", "s_address": text(),
         "s_nationkey": n % len(NATIONS), "s_phone": phone(n), "s_acctbal": money(-900, 9999),
         "s_comment": text()}
        for n in range(SUPPLIERS)
    ]  # fmt: skip
    partsupp = [
        {"ps_partkey": n, "ps_suppkey": (n + i * 7) % SUPPLIERS,
         "ps_availqty": draw.randint(1, 9999), "ps_supplycost": money(1, 1000)}
        for n in range(PARTS) for i in range(4)
    ]  # fmt: skip
    customer = [
        {"c_custkey": n, "c_name": f"Customer#{n}", "c_address": text(),
         "c_nationkey": n % len(NATIONS), "c_phone": phone(n), "c_acctbal": money(-900, 9999),
         "c_mktsegment": draw.choice(("BUILDING", "MACHINERY")), "c_comment": text()}
        for n in range(CUSTOMERS)
    ]  # fmt: skip
    orders: list[dict[str, Any]] = []
    lineitem: list[dict[str, Any]] = []
    for n in range(ORDERS):
        day = FIRST_DAY + timedelta(draw.randrange(2400))
        orders.append(
            {"o_orderkey": n, "o_custkey": draw.randrange(CUSTOMERS * 2 // 3),
             "o_orderstatus": draw.choice("FFO"), "o_totalprice": money(1000, 400_000),
             "o_orderdate": day, "o_orderpriority": draw.choice(("1-URGENT", "2-HIGH", "5-LOW")),
             "o_clerk": "Clerk#1", "o_shippriority": 0, "o_comment": text()}
        )  # fmt: skip
        for line in range(draw.randint(1, 8)):
            of = partsupp[draw.randrange(len(partsupp))]
            shipped = day + timedelta(draw.randint(1, 120))
            lineitem.append(
                {"l_orderkey": n, "l_partkey": of["ps_partkey"], "l_suppkey": of["ps_suppkey"],
                 "l_linenumber": line + 1, "l_quantity": money(1, 60),
                 "l_extendedprice": money(900, 99_000),
                 "l_discount": Decimal(draw.randint(0, 10)).scaleb(-2),
                 "l_tax": Decimal(draw.randint(0, 8)).scaleb(-2),
                 "l_returnflag": draw.choice("ANR"), "l_linestatus": draw.choice("FO"),
                 "l_shipdate": shipped, "l_commitdate": day + timedelta(draw.randint(30, 90)),
                 "l_receiptdate": shipped + timedelta(draw.randint(1, 30)),
                 "l_shipinstruct": draw.choice(("DELIVER IN PERSON", "NONE")),
                 "l_shipmode": draw.choice(("AIR", "AIR REG", "MAIL", "SHIP")),
                 "l_comment": text()}
            )  # fmt: skip
    nation = [
        {"n_nationkey": n, "n_name": name, "n_regionkey": region, "n_comment": ""}
        for n, (name, region) in enumerate(NATIONS)
    ]
    region = [{"r_regionkey": n, "r_name": name, "r_comment": ""} for n, name in enumerate(REGIONS)]
    made = {
        "part": part, "supplier": supplier, "partsupp": partsupp, "customer": customer,
        "orders": orders, "lineitem": lineitem, "nation": nation, "region": region,
    }  # fmt: skip
    return {name: _typed(rows) for name, rows in made.items()}


def _typed(rows: list[dict[str, Any]]) -> pa.Table:
    """With one type for all decimals."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    arrays = {
        name: pa.array(values, MONEY if isinstance(values[0], Decimal) else None)
        for name, values in columns.items()
    }
    return pa.table(arrays)
