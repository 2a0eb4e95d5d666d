package io.plake.spark.format;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.CharPadding;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.Feature;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.QueryVersions.PerQuery;
import io.plake.spark.core.QueryVersions;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.DataType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;

/**
 * Lets a temporary view read the version that is the newest when a query is analysed.
 *
 * <p>{@code CREATE TEMPORARY VIEW v USING plake} stores a relation, and a relation is pinned to a
 * version when it is made. Without this rule the view would never show what
 * {@code INSERT INTO v} wrote. The rule does two things. It marks such a view, where its options
 * name no version, by an option of its relation. And it replaces marked relations under a view by
 * relations that are pinned now.
 *
 * <p>One query reads one version: what was pinned for it is kept until its analysis ends. Frames
 * have no mark and keep their version, in a view that was made from a frame too. So does a frame
 * that was made from a marked view, for the replaced relation has no mark.
 */
public final class RepinViews extends Rule<LogicalPlan> {

  /** Options that pin a view on purpose. */
  private static final Set<String> VERSIONS = Set.of("version", "versionasof", "timestampasof");

  /** The tables that were pinned last, by those of the views. No value holds its key. */
  private static final Map<PythonTable, PythonTable> LATEST =
      Collections.synchronizedMap(new WeakHashMap<>());

  /** The tables that one query reads. */
  private static final PerQuery<Map<PythonTable, PythonTable>> PINS =
      new PerQuery<>(IdentityHashMap::new);

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!Relations.isOn()) {
      return plan;
    }
    try {
      return plan instanceof CreateTempViewUsing command ? marked(command)
          : plan.transformUp(new Rewrite<>(RepinViews::changed));
    } catch (LinkageError e) {
      Feature.VIEWS.failed(e);
      return plan;
    }
  }

  /** Whether a table was pinned for the query that is analysed now. */
  public static boolean isPinnedNow(PythonTable table) {
    return PINS.get().containsValue(table);
  }

  /** Fails where Spark lacks what the rule needs. */
  public static void check() throws ReflectiveOperationException {
    AnalysisContext.get().relationCache();
    Relations.check();
  }

  private static LogicalPlan changed(LogicalPlan node) {
    if (node instanceof View view && view.isTempView() && isMarked(view.child())) {
      return repinned(view);
    }
    // Spark has taken the view away from the target of an INSERT, which is no child of its node.
    return node instanceof InsertIntoStatement insert
        ? Rewrite.copy(node, part -> part == insert.table() ? unpadded(insert.table()) : part) : node;
  }

  private static LogicalPlan unpadded(LogicalPlan target) {
    LogicalPlan below = CharPadding.below(target);
    return Relations.isOurs(below) ? below : target;
  }

  private static boolean isMarked(LogicalPlan child) {
    LogicalPlan below = CharPadding.below(child);
    return Relations.isOurs(below)
        && ((DataSourceV2Relation) below).options().containsKey(Vocabulary.Option.VIEW);
  }

  @SuppressWarnings("unchecked") // Scala's `updated` loses the types of its map in Java
  private static LogicalPlan marked(CreateTempViewUsing command) {
    if (!Relations.SOURCE.equalsIgnoreCase(command.provider())) {
      return command;
    }
    for (String option : asJava(command.options()).keySet()) {
      String key = option.toLowerCase(Locale.ROOT);
      if (VERSIONS.contains(key) || SealedOptions.isOwn(key)) {
        return command;
      }
    }
    String schema = command.userSpecifiedSchema().isEmpty()
        ? Vocabulary.Schema.STORED : Vocabulary.Schema.GIVEN;
    Map<String, String> options = new HashMap<>(asJava(command.options()));
    SealedOptions.mark(options, Vocabulary.Option.VIEW, schema);
    return command.copy(
        command.tableIdent(), command.userSpecifiedSchema(), command.replace(),
        command.global(), command.provider(),
        scala.collection.immutable.Map.from(asScala(options)));
  }

  private static LogicalPlan repinned(View view) {
    DataSourceV2Relation relation = (DataSourceV2Relation) CharPadding.below(view.child());
    Map<String, String> options = new HashMap<>(relation.options().asCaseSensitiveMap());
    options.keySet().removeIf(SealedOptions::isOwn);
    boolean given = Vocabulary.Schema.GIVEN.equals(relation.options().get(Vocabulary.Option.VIEW));
    CaseInsensitiveStringMap unmarked = new CaseInsensitiveStringMap(options);
    PythonTable old = (PythonTable) relation.table();
    try {
      PythonTable table = PINS.get().get(old);
      if (table == null) {
        table = pinned(old, unmarked, given);
        PINS.get().put(old, table);
      }
      DataSourceV2Relation changed = Relations.copy(relation, table, unmarked);
      return view.withNewChildren(asScala(List.<LogicalPlan>of(changed)).toSeq());
    } catch (ReflectiveOperationException e) {
      Feature.VIEWS.failed(e);
      return view;
    }
  }

  /** A table that is pinned to the newest version; the last one where there is no newer. */
  private static PythonTable pinned(
      PythonTable old, CaseInsensitiveStringMap options, boolean given)
      throws ReflectiveOperationException {
    Option<StructType> schema = given ? new Some<>(old.schema()) : Option.empty();
    PythonDataSourceV2 newest = new PlakeSource();
    Map<?, ?> told = Envelope.responseIn(newest
        .getOrCreateDataSourceInPython(Relations.SOURCE, options, schema).dataSource());
    Object location = told == null ? null : told.get(Vocabulary.ScanResponse.LOCATION);
    PythonDataSourceV2 source = location == null ? newest : QueryVersions.of(
        String.valueOf(location), newest,
        ((Number) told.get(Vocabulary.ScanResponse.VERSION)).longValue(),
        version -> at(version, options, schema));
    PythonDataSourceCreationResult made =
        source.getOrCreateDataSourceInPython(Relations.SOURCE, options, schema);
    PythonTable last = LATEST.getOrDefault(old, old);
    byte[] before = Relations.sourceOf(last)
        .getOrCreateDataSourceInPython(Relations.SOURCE, options, schema).dataSource();
    // The instance holds its version. Spark finds a cached plan by the identity of its table.
    if (Arrays.equals(before, made.dataSource())) {
      return last;
    }
    if (!given) {
      checkColumns(old.schema(), made.schema());
    }
    PythonTable table = new PythonTable(source, Relations.SOURCE, old.schema());
    LATEST.put(old, table);
    return table;
  }

  /** The source of a view at the version that its query reads by another name. */
  private static PythonDataSourceV2 at(
      long version, CaseInsensitiveStringMap options, Option<StructType> schema) {
    Map<String, String> pinned = new HashMap<>(options.asCaseSensitiveMap());
    pinned.put("versionAsOf", Long.toString(version));
    PythonDataSourceV2 source = new PlakeSource();
    source.getOrCreateDataSourceInPython(
        Relations.SOURCE, new CaseInsensitiveStringMap(pinned), schema); // which it keeps
    return source;
  }

  /** The view keeps its columns: each must still be there with its type. */
  private static void checkColumns(StructType old, StructType now) {
    for (var field : old.fields()) {
      boolean found = false;
      for (var other : now.fields()) {
        found |= other.name().equals(field.name())
            && (field.nullable() || !other.nullable())
            && DataType$.MODULE$.equalsIgnoreCompatibleNullability(
                other.dataType(), field.dataType());
      }
      if (!found) {
        throw new IllegalArgumentException("The column " + field.name()
            + " of the dataset was dropped, renamed, made nullable or changed its type since the"
            + " temporary view over it was made. Make the view again: CREATE OR REPLACE TEMPORARY VIEW.");
      }
    }
  }
}
