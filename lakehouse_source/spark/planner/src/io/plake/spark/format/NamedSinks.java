package io.plake.spark.format;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.WriteCommands.WriteInfo;
import java.lang.reflect.InvocationTargetException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A stream into {@code format("plake")} whose option {@code tableName} names a table of Spark's
 * catalog: a sink of a pipeline has options alone.
 */
public final class NamedSinks {
  public static final String TABLE = "tableName";

  /** The write into the table that an option names; without one, that of the path. */
  static WriteBuilder orPath(LogicalWriteInfo info, Function<LogicalWriteInfo, WriteBuilder> path) {
    String name = info.options().get(TABLE);
    if (name == null) {
      return path.apply(info);
    }
    for (String other : List.of(Vocabulary.Place.PATH, Vocabulary.Place.CATALOG)) {
      if (info.options().containsKey(other)) {
        throw refused(name, "is for a table of Spark's catalog: leave the option " + other + " out");
      }
    }
    Map<String, String> options = new HashMap<>(info.options().asCaseSensitiveMap());
    options.keySet().removeIf(TABLE::equalsIgnoreCase);
    return table(name).newWriteBuilder(new WriteInfo(info, new CaseInsensitiveStringMap(options)));
  }

  /** The newest version of a table of Spark's catalog. */
  public static PlakeTable table(String name) {
    org.apache.spark.sql.classic.SparkSession session =
        (org.apache.spark.sql.classic.SparkSession) SparkSession.active();
    try {
      var parser = session.sessionState().sqlParser();
      List<String> parts = asJava(parser.parseMultipartIdentifier(name));
      String catalog = PlakeCatalogs.catalogOf(session, parts);
      boolean named = parts.size() > 1 && catalog.equals(parts.get(0));
      int last = parts.size() - 1;
      String[] namespace = (last > 0 ? parts.subList(named ? 1 : 0, last) : asJava(
          parser.parseMultipartIdentifier(session.catalog().currentDatabase()))).toArray(String[]::new);
      if (loaded(session, catalog) instanceof TableCatalog tables && tables.loadTable(
          Identifier.of(namespace, parts.get(last)), Set.of(TableWritePrivilege.INSERT))
          instanceof PlakeTable found) {
        return found;
      }
      throw refused(name, "is no table of plake");
    } catch (NoSuchTableException e) {
      throw refused(name, "is not there: CREATE TABLE it first, or let the pipeline have it as a"
          + " streaming table");
    } catch (ParseException e) {
      throw refused(name, "is no name of a table");
    }
  }

  /** A catalog of Spark. {@code CatalogManager} is a class on 4.1, and an interface later. */
  private static Object loaded(org.apache.spark.sql.classic.SparkSession session, String name) {
    try {
      var manager = SessionState.class.getMethod("catalogManager");
      return manager.getReturnType().getMethod("catalog", String.class)
          .invoke(manager.invoke(session.sessionState()), name);
    } catch (InvocationTargetException e) {
      throw Refusal.undeclared(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static RuntimeException refused(String name, String reason) {
    return Refusal.because("[PLAKE_INVALID_OPTION] option '" + TABLE + "' (given: " + name + "): "
        + reason + ".");
  }
}
