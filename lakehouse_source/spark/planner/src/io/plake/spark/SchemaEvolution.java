package io.plake.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;

/**
 * {@code MERGE WITH SCHEMA EVOLUTION} and, from Spark 4.2 on, {@code INSERT WITH SCHEMA EVOLUTION}.
 *
 * <p>Spark's analyzer compares the columns of table and source and calls {@code alterTable} of the
 * catalog with what the table lacks. That is a commit of its own, before that of the rows: it adds
 * nullable columns and widens types, so that readers see the same rows, with NULL, if the statement
 * then fails. Also {@code EXPLAIN} makes it.
 *
 * <p>From 4.2 on Spark asks the table for each change whether it can be made, and casts where it
 * cannot ({@link EvolvingTable}). 4.1 lacks that interface, and asks for every change: a source with a
 * narrower type than the table is refused there.
 */
final class SchemaEvolution {
  private static final boolean IS_ASKED = isAsked();

  private SchemaEvolution() {}

  private static boolean isAsked() {
    try {
      Class.forName("org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution", false,
          SchemaEvolution.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  /** A table of Spark's catalog. */
  static PlakeTable table(
      Channel channel, Identifier identifier, Channel.Answer answer, boolean isPinned,
      Map<String, String> more) {
    return IS_ASKED
        ? (PlakeTable) made("EvolvingTable", channel, identifier, answer, isPinned, more)
        : new PlakeTable(channel, identifier, answer, isPinned, more);
  }

  /** The target of a MERGE whose table has the columns that it needs now. */
  static StatementTable target(
      PythonDataSourceV2 frame, String shortName, StructType schema, long version) {
    return IS_ASKED
        ? (StatementTable) made("EvolvedStatementTable", frame, shortName, schema, version)
        : new StatementTable(frame, shortName, schema, version, true);
  }

  /** By reflection: Java's verifier would load the class on 4.1 too. */
  private static Object made(String name, Object... arguments) {
    try {
      Constructor<?> found = Class.forName(
          SchemaEvolution.class.getPackageName() + "." + name, true,
          SchemaEvolution.class.getClassLoader()).getDeclaredConstructors()[0];
      return found.newInstance(arguments);
    } catch (InvocationTargetException e) {
      throw Refusal.undeclared(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Whether Spark has made the changes of the table that a MERGE needs. */
  static boolean isDone(MergeIntoTable merge) {
    try {
      return IS_ASKED
          ? is(merge, "schemaEvolutionReady")
              && ((scala.collection.Seq<?>) call(merge, "pendingSchemaChanges")).isEmpty()
          : is(merge, "canEvaluateSchemaEvolution") && !is(merge, "needSchemaEvolution");
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static boolean is(MergeIntoTable merge, String question)
      throws ReflectiveOperationException {
    return (Boolean) call(merge, question);
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
