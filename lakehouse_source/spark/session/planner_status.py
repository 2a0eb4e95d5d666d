"""Door. Which parts of the planner extension work in a session, and rules added to running ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakehouse_source.result_tables import laid_out
from lakehouse_source.spark.protocol.vocabulary import Part, Setting

# --- Adds rules and functions to a session whose analyzer was made before `enable`.
#
# Spark makes an optimizer for every query, but one analyzer per session, at the first query, with
# the rules that extensions had then. The analyzer reads its lists of rules for every query. So
# later rules are added at the end of these lists, where Spark also adds rules of extensions.


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
        field = java_field(owner, name)
        found = field.get(owner)
        for rule in rules:
            found = found.appended(rule)
        field.set(owner, found)
    if not _has_parser(spark):
        session = spark._jsparkSession
        state = session.sessionState()
        parser = session.extensions().buildParser(session, state.sqlParser())
        java_field(state, _PARSER).set(state, parser)
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
        names = {rule.getClass().getName() for rule in _items(java_field(owner, name).get(owner))}
        lacking = [
            rule
            for rule in _items(rules)
            if rule.getClass().getName().startswith(_PACKAGE)
            and rule.getClass().getName() not in names
        ]
        if lacking:
            found.append((owner, name, lacking))
    return found


def java_field(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def _items(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.size())]


EXTENSION = "io.plake.spark.PlakeExtension"
RULE = "io.plake.spark.scan.IsolateScans"
STATUS = "status"  # its static method

# What each part does. Without a part, a query is slower but right, a view shows an older version,
# or a statement that changes rows is refused.
EFFECTS = {
    Part.PUSHDOWN: "scans read only the columns, files and row groups that they need",
    Part.AGGREGATES: "the catalog answers counts, minima and maxima",
    Part.FUNCTIONS: "conditions with functions, arithmetic or two columns prune",
    Part.JOIN_KEYS: "the keys of a broadcast join prune",
    Part.BATCHES: "rows come from Python and go to it in batches, and not row by row",
    Part.DECIMALS: "decimals of up to 18 digits are read as longs",
    Part.VIEWS: "temporary views show the newest version",
    Part.STATEMENTS: "DELETE, UPDATE and MERGE change rows",
    Part.CATALOG: "Spark's catalog has tables of plake",
    Part.CATALOG_VIEWS: "Spark's catalog has views of plake",
    Part.PROVIDER: "format('plake') has all save modes and partitionBy",
    Part.READER: "Spark's own Parquet reader reads where it is exact and faster",
    Part.METRICS: "scans show how many files and row groups were pruned, and by what",
}

_NOT_LOADED = "the extension is not loaded: call lakehouse_source.spark.enable(spark)"
_LATE = (
    "the session ran a query before the extension was loaded: call "
    "lakehouse_source.spark.enable(spark), or use spark.newSession()"
)
_CONNECT = "a Spark Connect client cannot see the planner of its server"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part. `works` is None if unknown; `reason` says why it is not True.

    >>> part = lake.spark.status(spark)["aggregates"]
    >>> part.works, part.effect
    (True, 'the catalog answers counts, minima and maxima')
    """

    name: str
    effect: str
    works: bool | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlannerStatus:
    """All parts. Prints as a table.

    >>> lake.spark.status(spark).is_enabled
    True
    """

    parts: tuple[PartStatus, ...]

    def __getitem__(self, name: str) -> PartStatus:
        """The part of that name, such as `status["batches"]`."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    @property
    def is_enabled(self) -> bool:
        """Tell whether queries push down; all other parts except views depend on this."""
        return self[Part.PUSHDOWN].works is True

    def __str__(self) -> str:
        said = {True: "works", False: "does not work", None: "unknown"}
        rows = [(p.name, said[p.works], p.effect, p.reason or "") for p in self.parts]
        titles, _rule, *lines = laid_out(("part", "state", "effect", "reason"), rows)
        return "\n".join([titles, *lines])


def status(spark: Any) -> PlannerStatus:
    """Tell which parts of the planner extension work in this session, and why one does not.

    A part does not work if the session does not load the extension or turns the part off, if this
    version of Spark lacks what the part needs, if executors do not have the jar (batches), or if it
    failed in an earlier query of this driver. Starts no job. For a session of Spark Connect, whose
    planner is on the server, `works` is None.

    >>> print(lake.spark.status(spark))
    part        state  effect ...
    pushdown    works  scans read only the columns, files and row groups that they need ...
    """
    if not is_classic(spark):
        return _all(None, _CONNECT)
    rule = find_rule(spark)
    if rule is None:
        return _all(False, _NOT_LOADED)
    if _is_off(spark, Setting.PLANNER):
        return _all(False, f"switched off by {Setting.PLANNER}")
    reasons = _reasons(spark, rule)
    if _is_off(spark, Setting.BATCHES):
        reasons[Part.BATCHES] = f"switched off by {Setting.BATCHES}"
    if are_missing(spark):
        for part in (Part.VIEWS, Part.STATEMENTS, Part.CATALOG, Part.PROVIDER):
            reasons[part] = reasons[part] or _LATE
    if reasons[Part.PUSHDOWN]:
        without = (Part.PUSHDOWN, Part.VIEWS, Part.CATALOG, Part.CATALOG_VIEWS, Part.PROVIDER)
        needy = set(reasons).difference(without)
        reasons |= dict.fromkeys(needy, f"needs {Part.PUSHDOWN}")
    return PlannerStatus(
        tuple(
            PartStatus(name, effect, not reasons[name], reasons[name] or None)
            for name, effect in EFFECTS.items()
        )
    )


def is_classic(spark: Any) -> bool:
    """Tell whether a session's JVM can be reached; a Spark Connect client has none."""
    # A Connect session raises on `_jsparkSession` instead of lacking it.
    classic = ".connect." not in f"{type(spark).__module__}."
    return classic and getattr(spark, "_jsparkSession", None) is not None


def find_rule(spark: Any) -> Any:
    """The extension's rule in the session's planner, or None."""
    session = spark._jsparkSession
    rules = session.extensions().buildPreCBORules(session)
    found = (rules.apply(i) for i in range(rules.size()))
    return next((rule for rule in found if rule.ruleName() == RULE), None)


def java_array(spark: Any, kind: Any, *items: Any) -> Any:
    """A Java array for Java's reflection."""
    made = spark.sparkContext._gateway.new_array(kind, len(items))
    for i, item in enumerate(items):
        made[i] = item
    return made


def _reasons(spark: Any, rule: Any) -> dict[str, str]:
    """For each part the reason why it does not work; empty if the part works."""
    from py4j.protocol import Py4JError

    jvm = spark._jvm
    try:
        # By reflection: Py4J caches methods by the name of a class, which sessions of one JVM may
        # have loaded several times.
        extension = rule.getClass().getClassLoader().loadClass(EXTENSION)
        method = extension.getMethod(STATUS, java_array(spark, jvm.java.lang.Class))
        found = method.invoke(None, java_array(spark, jvm.java.lang.Object))
    except Py4JError as error:
        text = str(error).strip().splitlines()[-1]
        return dict.fromkeys(EFFECTS, f"the jar that is loaded is of another plake: {text}")
    known = {str(key): str(value) for key, value in found.items()}
    return {name: known.get(name, "the jar that is loaded lacks it") for name in EFFECTS}


def _is_off(spark: Any, setting: str) -> bool:
    return str(spark.conf.get(setting, "true")).lower() != "true"


def _all(works: bool | None, reason: str) -> PlannerStatus:
    return PlannerStatus(
        tuple(PartStatus(name, effect, works, reason) for name, effect in EFFECTS.items())
    )
