package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.core.Channel;
import io.plake.spark.core.CharPadding;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.Feature;
import io.plake.spark.core.HiddenColumns;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.core.StreamErrors;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.Waiting;
import io.plake.spark.format.RepinViews;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.InsertStarAction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateStarAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;

/**
 * Makes a plake frame or view the target of DELETE, UPDATE and MERGE.
 *
 * <p>Spark itself then rewrites the statement into a query that finds the rows ({@code
 * WriteDelta}). The target must be at the newest version when the statement is analysed. What
 * others commit after that is checked when the statement commits.
 */
public final class RowStatements extends Rule<LogicalPlan> {

  private static final Set<String> VERSIONS = Set.of("version", "versionasof", "timestampasof");

  /** Of a MERGE WITH SCHEMA EVOLUTION that takes all columns of its source. */
  private static final TreeNodeTag<Boolean> STARS = new TreeNodeTag<>("plake.stars");

  /** Before tables are resolved, and before Spark replaces each star by columns. */
  public static final class Wait extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return Relations.isOn() ? plan.transformUp(new Rewrite<>(Wait::waiting)) : plan;
    }

    private static LogicalPlan waiting(LogicalPlan node) {
      if (!(node instanceof MergeIntoTable merge) || !merge.withSchemaEvolution()
          || merge.targetTable().resolved() || Waiting.is(merge.sourceTable())) {
        return node;
      }
      LogicalPlan waiting =
          withChildren(merge, merge.targetTable(), Waiting.of(merge.sourceTable()));
      if (hasStar(merge.matchedActions()) || hasStar(merge.notMatchedActions())) {
        waiting.setTagValue(STARS, true);
      }
      return waiting;
    }

    private static boolean hasStar(scala.collection.immutable.Seq<MergeAction> actions) {
      return actions.exists(one -> one instanceof UpdateStarAction || one instanceof InsertStarAction);
    }
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!Relations.isOn()) {
      return plan;
    }
    LogicalPlan ready =
        SchemaEvolution.withStrings(plan).transformUp(new Rewrite<>(RowStatements::ready));
    try {
      checkTargets(ready);
      return ready.transformUp(new Rewrite<>(RowStatements::changed))
          .transformUp(new Rewrite<>(RowStatements::withoutGroupFilter));
    } catch (LinkageError e) {
      Feature.STATEMENTS.failed(e);
      return ready;
    }
  }

  /** A MERGE whose source may be resolved: it has been compared with the target here. */
  private static LogicalPlan ready(LogicalPlan node) {
    if (!(node instanceof MergeIntoTable merge) || !Waiting.is(merge.sourceTable())) {
      return node;
    }
    LogicalPlan source = Waiting.query(merge.sourceTable());
    boolean isOurs = Relations.isOurs(below(merge));
    if (!merge.targetTable().resolved() || isOurs && !source.resolved()) {
      return node;
    }
    if (isOurs) {
      checkSource(merge, source, (DataSourceV2Relation) below(merge));
    }
    return withChildren(merge, merge.targetTable(), source);
  }

  /**
   * Without the condition by which Spark would look for the files that a MERGE changes.
   *
   * <p>From 4.3 on, a {@code WriteDelta} has such a condition: {@code EXISTS} over the source. plake
   * does not use it, as the scan of the target is pruned by the keys of the join. Spark refuses the
   * whole statement for it where the source is not deterministic, such as one with {@code uuid()}.
   */
  private static LogicalPlan withoutGroupFilter(LogicalPlan node) {
    return node instanceof WriteDelta write
            && write.table() instanceof DataSourceV2Relation target
            && Relations.isTarget(target.table())
        ? Rewrite.copy(node, part -> part instanceof Some<?> given
            && given.value() instanceof Expression ? Option.empty() : part) : node;
  }

  private static LogicalPlan withChildren(
      MergeIntoTable merge, LogicalPlan target, LogicalPlan source) {
    return merge.withNewChildren(asScala(List.of(target, source)).toSeq());
  }

  /**
   * Refuses a column of the source that the statement would add if the target had no hidden one.
   * Spark takes it for the hidden one: it would not be added, or fail by its type.
   */
  private static void checkSource(
      MergeIntoTable merge, LogicalPlan source, DataSourceV2Relation target) {
    List<Attribute> columns = asJava(source.output());
    for (Attribute hidden : asJava(target.metadataOutput())) {
      if (columns.stream().anyMatch(column -> column.name().equalsIgnoreCase(hidden.name()))
          && (merge.getTagValue(STARS).isDefined() || isAssigned(merge, hidden))) {
        throw Refusal.because(HiddenColumns.notAdded(hidden.name()));
      }
    }
  }

  private static boolean isAssigned(MergeIntoTable merge, Attribute hidden) {
    return asJava(merge.expressions()).stream().anyMatch(
        action -> action.exists(part -> part instanceof Assignment assigned
            && assigned.key() instanceof UnresolvedAttribute name
            && merge.targetTable().resolve(name.nameParts().toSeq(), SQLConf.get().resolver())
                .exists(found -> found.exprId().equals(hidden.exprId()))));
  }

  /**
   * Refuses what no statement can change. A stream has no columns that tell where a row is stored;
   * Spark would read others instead.
   */
  private static void checkTargets(LogicalPlan plan) {
    if (plan instanceof StreamingRelationV2 stream && isOurs(stream)
        && stream.output().size() > stream.table().columns().length) {
      throw Refusal.because("A stream of plake has no columns that tell where a row is stored.");
    }
    LogicalPlan target = below(plan);
    if (target instanceof StreamingRelationV2 stream && isOurs(stream)) {
      throw refused("changes tables, and not streams");
    }
    if (target != null && target.resolved() && !(target instanceof DataSourceV2Relation)) {
      checkNoQuery(given(plan), "");
    }
    asJava(plan.children()).forEach(RowStatements::checkTargets);
  }

  /** Spark has no plan for a statement on a view that is made of a query, and fails inside. */
  private static void checkNoQuery(LogicalPlan target, String name) {
    if (target instanceof SubqueryAlias alias) {
      checkNoQuery(alias.child(), alias.identifier().toString());
    } else if (target instanceof View && target.exists(Relations::isOurs)) {
      throw refused("changes tables, and the view " + name + " is made of a query. Name the"
          + " table, and put the condition of the view into that of the statement");
    }
  }

  private static boolean isOurs(StreamingRelationV2 stream) {
    return stream.table() instanceof PlakeTable || StreamErrors.areOf(stream.table())
        || stream.table() instanceof PythonTable && Relations.SOURCE.equals(stream.sourceName());
  }

  /** Whether the options of a frame name a version, or ask about the dataset. */
  static boolean namesVersion(CaseInsensitiveStringMap options) {
    return options.containsKey("metadatatable") || VERSIONS.stream().anyMatch(options::containsKey);
  }

  /** The version that a frame reads. Its instance in Python says so. */
  static long versionOf(
      PythonDataSourceV2 frame, PythonTable table, CaseInsensitiveStringMap options) {
    return ((Number) told(frame, table, options).get(Vocabulary.ScanResponse.VERSION)).longValue();
  }

  private static Map<?, ?> told(
      PythonDataSourceV2 frame, PythonTable table, CaseInsensitiveStringMap options) {
    byte[] pickled;
    synchronized (frame) {
      pickled = frame.getOrCreateDataSourceInPython(
          table.name(), options, new Some<>(table.schema())).dataSource();
    }
    Map<?, ?> body = Envelope.responseIn(pickled);
    if (body == null || body.get(Vocabulary.ScanResponse.VERSION) == null) {
      throw new IllegalStateException("the data source does not tell the version of its frame");
    }
    return body;
  }

  /** The columns of the primary key of a frame; empty: there is none. */
  static List<String> primaryKey(PythonTable table, CaseInsensitiveStringMap options) {
    try {
      return ((List<?>) told(Relations.sourceOf(table), table, options)
          .get(Vocabulary.ScanResponse.PRIMARY_KEY)).stream().map(String.class::cast).toList();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static LogicalPlan changed(LogicalPlan node) {
    DataSourceV2Relation target = targetOf(node);
    if (target == null) {
      return node;
    }
    DataSourceV2Relation now = statementOn(target, isView(node), evolves(node));
    if (node.getTagValue(BuiltStatements.OPTIONS).isDefined()) {
      ((StatementTable) now.table()).writeOptions = PlakeTable.withoutPlace(
          new CaseInsensitiveStringMap(node.getTagValue(BuiltStatements.OPTIONS).get()));
    }
    MetadataColumns places = new MetadataColumns(target, now);
    LogicalPlan done = withTarget(node, now)
        .transformAllExpressionsWithSubqueries(new Rewrite<>(places::moved))
        .transformExpressions(new Rewrite<>(Assignments::withoutCast));
    boolean named = places.wereNamed()
        || target.output().size() > target.table().columns().length
        || MetadataColumns.areNamed(node, now);
    if (named && !(node instanceof DeleteFromTable)) { // Spark would write them with the row
      throw Refusal.because("An UPDATE or MERGE of plake cannot name columns that tell where a"
          + " row of its target is stored. Use a subquery:"
          + " WHERE id IN (SELECT id FROM t WHERE _pos = 2).");
    }
    return Assignments.added(done, now);
  }

  /** Whether the target is a view, which may be over a frame of an older version. */
  private static boolean isView(LogicalPlan node) {
    LogicalPlan target = given(node);
    while (target instanceof SubqueryAlias alias) {
      target = alias.child();
    }
    return target instanceof View;
  }

  /** What a statement changes, as Spark found it; null where the node is no statement. */
  private static LogicalPlan given(LogicalPlan node) {
    return node instanceof DeleteFromTable delete ? delete.table()
        : node instanceof UpdateTable update ? update.table()
        : node instanceof MergeIntoTable merge ? merge.targetTable() : null;
  }

  /** What a statement changes, below its names and views; null where the node is no statement. */
  private static LogicalPlan below(LogicalPlan node) {
    LogicalPlan target = given(node);
    while (target instanceof SubqueryAlias || target instanceof View view && view.isTempView()) {
      target = target.children().head();
    }
    return CharPadding.below(target);
  }

  /** The plake relation that a statement changes; null where there is none or it is known. */
  private static DataSourceV2Relation targetOf(LogicalPlan node) {
    return below(node) instanceof DataSourceV2Relation relation && Relations.isOurs(relation)
        && !mustWait(node, relation)
        // A view that has this mark gets its version first.
        && !relation.options().containsKey(Vocabulary.Option.VIEW) ? relation : null;
  }

  /** Spark adds the columns that a MERGE WITH SCHEMA EVOLUTION needs to the table itself. */
  private static boolean mustWait(LogicalPlan node, DataSourceV2Relation target) {
    return evolves(node) && target.table() instanceof PlakeTable table && !table.isPinned
        && !table.isMetadata && !isView(node) && !SchemaEvolution.isDone((MergeIntoTable) node);
  }

  private static boolean evolves(LogicalPlan node) {
    return node instanceof MergeIntoTable merge && merge.withSchemaEvolution();
  }

  private static LogicalPlan withTarget(LogicalPlan node, LogicalPlan target) {
    if (node instanceof MergeIntoTable merge) {
      return withChildren(merge, replaced(merge.targetTable(), target), merge.sourceTable());
    }
    return node.withNewChildren(asScala(List.of(replaced(node.children().head(), target))).toSeq());
  }

  /** Spark looks for its target below names, and not below views. */
  private static LogicalPlan replaced(LogicalPlan node, LogicalPlan target) {
    if (node instanceof SubqueryAlias alias) {
      return alias.copy(alias.identifier(), replaced(alias.child(), target));
    }
    return node instanceof View view ? replaced(view.child(), target) : target;
  }

  private static DataSourceV2Relation statementOn(
      DataSourceV2Relation relation, boolean isView, boolean evolves) {
    if (evolves && (isView || !(relation.table() instanceof PlakeTable))) {
      throw refused("cannot add columns to a view: leave WITH SCHEMA EVOLUTION out, and add them"
          + " before, with add_column() of lakehouse_source.open_dataset(...); or name the table");
    }
    if (relation.table() instanceof PlakeTable known) {
      return statementOn(relation, known, isView, evolves);
    }
    PythonTable table = (PythonTable) relation.table();
    CaseInsensitiveStringMap options = relation.options();
    for (String key : options.keySet()) {
      if (VERSIONS.contains(key.toLowerCase(Locale.ROOT))) {
        throw refused("changes the newest version, and the option " + key + " names another");
      }
    }
    checkNames(table.schema());
    try {
      PythonDataSourceV2 frame = Relations.sourceOf(table);
      long version = versionOf(frame, table, options);
      if (!RepinViews.isPinnedNow(table)) {
        Channel.refuseInTransaction("a statement on a view of a frame");
        checkNewest(version, versionOf(new PlakeSource(), table, options));
      }
      StatementTable target = new StatementTable(frame, table.schema(), version);
      target.computed = Envelope.tree(
          told(frame, table, options).get(Vocabulary.ScanResponse.COMPUTED));
      return Relations.copy(relation, target, options);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static void checkNewest(long version, long newest) {
    if (newest != version) {
      throw refused("changes the newest version, which is " + newest
          + ", and this frame or view keeps version " + version + ". Load the frame again, or"
          + " use CREATE TEMPORARY VIEW ... USING plake, which always shows the newest");
    }
  }

  /** A statement on a table of Spark's catalog. Without a view this query has just loaded it. */
  private static DataSourceV2Relation statementOn(
      DataSourceV2Relation relation, PlakeTable table, boolean isView, boolean evolves) {
    if (table.isMetadata) {
      throw refused("cannot change " + table.name() + ", which tells about a table");
    }
    if (table.isPinned) {
      throw refused("changes the newest version, and version " + table.version + " was named");
    }
    checkNames(table.schema());
    if (isView) {
      Channel.refuseInTransaction("a statement on a view of a frame");
      checkNewest(table.version, table.newestVersion());
    }
    PythonDataSourceV2 frame = table.frameFor(CaseInsensitiveStringMap.empty());
    StatementTable target = evolves
        ? StatementTable.evolved(frame, table.schema(), table.version)
        : new StatementTable(frame, table.schema(), table.version);
    target.computed = table.computed();
    return Relations.copy(
        relation, target.with(table.properties()), table.with(relation.options()));
  }

  private static void checkNames(StructType schema) {
    Set<String> names = new HashSet<>();
    for (String name : schema.fieldNames()) {
      if (name.equalsIgnoreCase(Vocabulary.Row.OPERATION)) {
        throw refused("cannot change a dataset with a column named " + name);
      }
      if (!names.add(name.toLowerCase(Locale.ROOT))) {
        throw refused("cannot change a dataset with two columns named " + name);
      }
    }
    if (names.isEmpty()) {
      throw refused("cannot change a dataset without columns");
    }
  }

  private static IllegalArgumentException refused(String reason) {
    return new IllegalArgumentException("A DELETE, UPDATE or MERGE of plake " + reason + ".");
  }
}
