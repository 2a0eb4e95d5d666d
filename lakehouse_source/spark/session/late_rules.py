"""Door. Adds rules and functions to a session whose analyzer was made before `enable`.

Spark makes an optimizer for every query, but one analyzer per session, at the first query, with the
rules that extensions had then. The analyzer reads its lists of rules for every query. So later
rules are added at the end of these lists, where Spark also adds rules of extensions.
"""

from __future__ import annotations

from typing import Any

_PACKAGE = "io.plake.spark."
# The analyzer's lists, and the methods of a session's extensions that make rules for them.
_LISTS = {
    "hintResolutionRules": "buildHintResolutionRules",
    "extendedResolutionRules": "buildResolutionRules",
    "postHocResolutionRules": "buildPostHocResolutionRules",
}
_FUNCTION = "table_changes"
_COLUMNAR = "columnarRules"  # a list of the session's state
_PARSER = "sqlParser"


def add_missing(spark: Any) -> None:
    """Add the extension's rules to the lists of a session that lack them, its functions and parser.

    Raises:
        Py4JError: this Spark has no such lists.
    """
    for owner, name, rules in _missing(spark):
        field = _field(owner, name)
        found = field.get(owner)
        for rule in rules:
            found = found.appended(rule)
        field.set(owner, found)
    if not _has_parser(spark):
        session = spark._jsparkSession
        state = session.sessionState()
        parser = session.extensions().buildParser(session, state.sqlParser())
        _field(state, _PARSER).set(state, parser)
    registry = spark._jsparkSession.sessionState().tableFunctionRegistry()
    name = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(_FUNCTION)
    if not registry.functionExists(name):
        spark._jsparkSession.extensions().registerTableFunctions(registry)


def are_missing(spark: Any) -> bool:
    """Tell whether a list lacks a rule of the extension, or may lack one."""
    from py4j.protocol import Py4JError

    try:
        return bool(_missing(spark)) or not _has_parser(spark)
    except Py4JError:
        return True


def _has_parser(spark: Any) -> bool:
    """Tell whether the extension's parser, a proxy, is the session's."""
    proxies = spark._jvm.java.lang.reflect.Proxy
    parser = spark._jsparkSession.sessionState().sqlParser()
    if not proxies.isProxyClass(parser.getClass()):
        return False
    name: str = proxies.getInvocationHandler(parser).getClass().getName()
    return name.startswith(_PACKAGE)


def _missing(spark: Any) -> list[tuple[Any, str, list[Any]]]:
    """The object with a list, the list's name, and the extension's rules that the list lacks."""
    session = spark._jsparkSession
    extensions, state = session.extensions(), session.sessionState()
    analyzer = state.analyzer()
    made = [
        (analyzer, name, getattr(extensions, method)(session)) for name, method in _LISTS.items()
    ]
    made.append((state, _COLUMNAR, extensions.buildColumnarRules(session)))
    found = []
    for owner, name, rules in made:
        names = {rule.getClass().getName() for rule in _items(_field(owner, name).get(owner))}
        lacking = [
            rule
            for rule in _items(rules)
            if rule.getClass().getName().startswith(_PACKAGE)
            and rule.getClass().getName() not in names
        ]
        if lacking:
            found.append((owner, name, lacking))
    return found


def _field(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def _items(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.size())]
