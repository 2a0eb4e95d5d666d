package io.plake.spark.core;

import java.lang.reflect.InvocationTargetException;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;

/**
 * {@code MERGE WITH SCHEMA EVOLUTION} and, from Spark 4.2 on, {@code INSERT WITH SCHEMA EVOLUTION}.
 *
 * <p>Spark's analyzer compares the columns of table and source and calls {@code alterTable} of the
 * catalog with what the table lacks. That is a commit of its own, before that of the rows: it adds
 * nullable columns and widens types, so that readers see the same rows, with NULL, if the statement
 * then fails. Also {@code EXPLAIN} makes it.
 *
 * <p>From 4.2 on Spark asks the table for each change whether it can be made, and casts where it
 * cannot ({@code EvolvingTable}). 4.1 lacks that interface, and asks for every change: a source with a
 * narrower type than the table is refused there.
 */
public final class SchemaEvolution {
  /** Whether Spark asks tables which changes they can make. */
  public static final boolean IS_ASKED = isAsked();

  private static boolean isAsked() {
    try {
      Class.forName("org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution", false,
          SchemaEvolution.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  /** A new object of a class that 4.1 cannot load: Java's verifier would load it if code named it. */
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
