package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * {@code MERGE WITH SCHEMA EVOLUTION} and, from Spark 4.2 on, {@code INSERT WITH SCHEMA EVOLUTION}.
 *
 * <p>Spark's analyzer compares the columns of table and source and calls {@code alterTable} of the
 * catalog with what the table lacks, and then {@code loadTable}. plake's catalogs commit nothing
 * there ({@link #isAsking}): the table that is loaded has the columns, and the write that it gets
 * commits them with its rows.
 *
 * <p>From 4.2 on Spark asks the table for each change whether it can be made, and casts where it
 * cannot ({@code EvolvingTable}). 4.1 lacks that interface, and asks for every change: a source
 * with a narrower type than the table is refused there.
 */
public final class SchemaEvolution {
  /** Whether Spark asks tables which changes they can make. */
  public static final boolean IS_ASKED = isAsked();

  private static final String RULES = "org.apache.spark.sql.catalyst.analysis.";
  private static final ThreadLocal<Map.Entry<Object, Table>> NEXT = new ThreadLocal<>();

  private static boolean isAsked() {
    try {
      Class.forName("org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution", false,
          SchemaEvolution.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  /**
   * A new object of a class that 4.1 cannot load: Java's verifier would load it if code named it.
   */
  public static Object made(String name, Object... arguments) {
    try {
      return Class.forName(name, true, SchemaEvolution.class.getClassLoader())
          .getDeclaredConstructors()[0].newInstance(arguments);
    } catch (InvocationTargetException e) {
      throw Refusal.undeclared(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Whether it is Spark's analyzer that calls, for a statement WITH SCHEMA EVOLUTION. */
  public static boolean isAsking() {
    return StackWalker.getInstance().walk(frames -> frames.anyMatch(
        frame -> frame.getClassName().startsWith(RULES)
            && frame.getClassName().contains("SchemaEvolution")));
  }

  /**
   * Keeps a table for Spark to load next, in the rule that has asked for its changes.
   *
   * @param named catalog and name of the table
   */
  public static Table next(Object named, Table table) {
    NEXT.set(Map.entry(named, table));
    return table;
  }

  /** The table of {@link #next}; null where another one is loaded, or by another rule. */
  public static Table next(Object named) {
    Map.Entry<Object, Table> next = NEXT.get();
    if (next == null) {
      return null;
    }
    NEXT.remove();
    return next.getKey().equals(named) && isAsking() ? next.getValue() : null;
  }

  /** Whether Spark has made the changes of the table that a MERGE needs. */
  public static boolean isDone(MergeIntoTable merge) {
    try {
      return IS_ASKED
          ? is(merge, "schemaEvolutionReady")
              && ((scala.collection.Seq<?>) call(merge, "pendingSchemaChanges")).isEmpty()
          : is(merge, "canEvaluateSchemaEvolution") && !is(merge, "needSchemaEvolution");
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * The plan with strings for CHAR and VARCHAR columns of tables of plake.
   *
   * <p>Spark makes them so when it loads a table, and not when it has evolved one: the checks of
   * lengths that it then puts around each assignment never have the type of the column. Nor when it
   * loads one for a stream, which then ends in an internal error.
   */
  public static LogicalPlan withStrings(LogicalPlan plan) {
    Map<ExprId, AttributeReference> columns = new HashMap<>();
    LogicalPlan ready = plan.transformUp(new Rewrite<>(node -> {
      if (node instanceof V2WriteCommand write // its table is not among its children
          && write.table() instanceof DataSourceV2Relation target && Relations.isOurs(target)) {
        DataSourceV2Relation strings = strings(target, columns);
        return strings == target ? node : (LogicalPlan) write.withNewTable(strings);
      }
      if (node instanceof StreamingRelationV2 stream && Relations.isOurTable(stream.table())) {
        Seq<AttributeReference> strings = strings(stream.output(), columns);
        return Rewrite.<LogicalPlan>copy(stream, part -> part == stream.output() ? strings : part);
      }
      return Relations.isOurs(node) ? strings((DataSourceV2Relation) node, columns) : node;
    }));
    return columns.isEmpty() ? plan : ready.transformAllExpressionsWithSubqueries(
        new Rewrite<>(part -> part instanceof AttributeReference column
            && columns.containsKey(column.exprId())
            ? columns.get(column.exprId()).withQualifier(column.qualifier()) : part));
  }

  private static DataSourceV2Relation strings(
      DataSourceV2Relation relation, Map<ExprId, AttributeReference> changed) {
    Seq<AttributeReference> columns = strings(relation.output(), changed);
    return columns == relation.output() ? relation : Relations.copy(relation, asJava(columns));
  }

  private static Seq<AttributeReference> strings(
      Seq<AttributeReference> output, Map<ExprId, AttributeReference> changed) {
    StructType given = new StructType(asJava(output).stream()
        .map(column -> new StructField(
            column.name(), column.dataType(), column.nullable(), column.metadata()))
        .toArray(StructField[]::new));
    StructType strings = CharVarcharUtils.replaceCharVarcharWithStringInSchema(given);
    if (strings.equals(given)) {
      return output;
    }
    List<AttributeReference> columns = new ArrayList<>();
    for (AttributeReference column : asJava(output)) {
      int at = columns.size();
      if (!strings.apply(at).equals(given.apply(at))) {
        column = column.withDataType(strings.apply(at).dataType())
            .withMetadata(strings.apply(at).metadata());
        changed.put(column.exprId(), column);
      }
      columns.add(column);
    }
    return asScala(columns).toSeq();
  }

  private static boolean is(MergeIntoTable merge, String predicate)
      throws ReflectiveOperationException {
    return (Boolean) call(merge, predicate);
  }

  private static Object call(MergeIntoTable merge, String method)
      throws ReflectiveOperationException {
    try {
      return MergeIntoTable.class.getMethod(method).invoke(merge);
    } catch (InvocationTargetException e) { // Spark's refusal of the types
      throw Refusal.undeclared(e.getCause());
    }
  }
}
