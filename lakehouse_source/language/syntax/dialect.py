"""Pure. Spark's dialect of sqlglot, with functions left as they are written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

# Types of sqlglot that Spark lacks mark the literals 1L, 1S and 1Y: sqlglot makes each a
# cast, and Spark gives decimals of other precisions to a literal than to a cast.
SUFFIXED = {"INT128": pa.int64(), "UINT128": pa.int16(), "UINT256": pa.int8()}


class PlakeSpark(Spark):
    """What `tree_of` reads expressions with."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {  # noqa: RUF012
            **Spark.Tokenizer.KEYWORDS,
            "PLAKE LONG": TokenType.INT128,
            "PLAKE SHORT": TokenType.UINT128,
            "PLAKE TINY": TokenType.UINT256,
        }
        NUMERIC_LITERALS = {  # noqa: RUF012
            **Spark.Tokenizer.NUMERIC_LITERALS,
            "L": "PLAKE LONG",
            "S": "PLAKE SHORT",
            "Y": "PLAKE TINY",
        }

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        STRICT_CAST = True
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
        }
