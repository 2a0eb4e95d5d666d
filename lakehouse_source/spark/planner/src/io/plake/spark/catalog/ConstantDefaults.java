package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tells default values that differ from one INSERT to the next.
 *
 * <p>Spark evaluates the SQL of a default in each statement, and takes {@code current_timestamp()}
 * for a constant. plake keeps the value that other SQL had once, because it also writes without
 * Spark, and of these the text, which its own writers evaluate.
 */
final class ConstantDefaults {
  private static final Set<String> OTHERS = Set.of(
      "now", "curdate", "localtimestamp", "user", "session_user");

  /** @param sql the default value of a new column, which rows that are there would have too */
  static void checkAdded(String column, String sql) {
    if (changes(sql)) {
      throw Refusal.because("rows that are there have one default value, and " + sql
          + " has another one in each statement: column " + column
          + ". Add the column, and then ALTER COLUMN " + column + " SET DEFAULT " + sql + ".");
    }
  }

  /** @param sql the default value of a column as the user wrote it; null: it has none */
  static boolean changes(String sql) {
    return sql != null && !sql.isEmpty()
        && CatalystSqlParser$.MODULE$.parseExpression(sql).exists(part -> changing(part) != null);
  }

  /** The name of a function whose value belongs to a statement; null where it is none. */
  private static String changing(Expression expression) {
    if (expression instanceof UnresolvedAttribute name) { // current_date without parentheses
      List<String> parts = CollectionConverters.asJava(name.nameParts());
      return changes(parts, 1) ? last(parts) : null;
    }
    if (expression instanceof UnresolvedFunction function) {
      List<String> parts = CollectionConverters.asJava(function.nameParts());
      return changes(parts, function.arguments().size()) ? last(parts) + "()" : null;
    }
    String kind = expression.getClass().getSimpleName(); // with reserved words the parser knows them
    return kind.startsWith("Current") || kind.startsWith("LocalTimestamp") ? kind : null;
  }

  private static boolean changes(List<String> parts, int arguments) {
    String name = last(parts);
    return name.startsWith("current_") || OTHERS.contains(name)
        || name.equals("unix_timestamp") && arguments == 0;
  }

  private static String last(List<String> parts) {
    return parts.get(parts.size() - 1).toLowerCase(Locale.ROOT);
  }
}
