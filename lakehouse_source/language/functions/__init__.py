"""Pure. What operators, casts and functions do: their types, their kernels, NULL and order.

`FUNCTIONS` has those that expressions know, of all families.

Source: Spark's `stringExpressions`, `mathExpressions`, `datetimeExpressions`,
`conditionalExpressions` and `collectionOperations`.
"""

from __future__ import annotations

from difflib import get_close_matches

from lakehouse_source.language.functions import comparison, dates, nested, numbers, text
from lakehouse_source.language.functions.entry import Context, Function
from lakehouse_source.language.functions.rows import Bound
from lakehouse_source.language.nodes import Call
from lakehouse_source.language.values import Failure

FUNCTIONS: dict[str, Function] = {
    **text.FUNCTIONS,
    **numbers.FUNCTIONS,
    **comparison.FUNCTIONS,
    **dates.FUNCTIONS,
    **nested.FUNCTIONS,
    **nested.OF_VARIANT,
}
# Functions whose value changes from call to call or from row to row: refused in conditions.
NOT_DETERMINISTIC = frozenset(
    {
        *("rand", "random", "randn", "randstr", "uniform", "shuffle", "uuid", "reflect"),
        *("monotonically_increasing_id", "spark_partition_id", "java_method"),
        *("input_file_name", "input_file_block_start", "input_file_block_length"),
    }
)


def check_known(name: str) -> None:
    """Check that there is a function of a name.

    Raises:
        Failure: there is no such function. The message names the most similar names.
    """
    if name in FUNCTIONS:
        return
    if name in NOT_DETERMINISTIC:
        raise Failure(f"function {name} is not deterministic: its value changes from row to row")
    near = get_close_matches(name, FUNCTIONS, 3, 0.6)
    hint = f"the nearest known is {near[0]}" if near else "docs/conditions.md lists those that are"
    raise Failure(f"function {name} is not supported; {hint}")


def build(context: Context, call: Call) -> Bound:
    """The function that a call names.

    Raises:
        Failure: the function is not known, or does not take these arguments.
    """
    check_known(call.name)
    known, count = FUNCTIONS[call.name], len(call.arguments)
    if count < known.least or (known.most is not None and count > known.most):
        raise Failure(f"function {call.name} does not take {count} arguments")
    return known.build(context, call, [context.bind(argument) for argument in call.arguments])
