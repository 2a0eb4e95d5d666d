package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.IdentityColumnSpec;
import org.apache.spark.sql.execution.datasources.v2.ShowCreateTableExec;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** Columns whose values plake computes, as Spark hands them over and shows them. */
final class ComputedColumns {

  /** Those of a table that is created. */
  static void put(ObjectNode request, Column[] columns) {
    ObjectNode computed = request.putObject(Vocabulary.RequestKey.COMPUTED);
    for (Column column : columns) {
      if (column.generationExpression() != null) {
        computed.putObject(column.name()).put(
            Vocabulary.Computed.EXPRESSION, column.generationExpression());
      }
      IdentityColumnSpec numbers = column.identityColumnSpec();
      if (numbers != null) {
        computed.putObject(column.name()).putObject(Vocabulary.Computed.IDENTITY)
            .put(Vocabulary.Computed.START, numbers.getStart())
            .put(Vocabulary.Computed.STEP, numbers.getStep())
            .put(Vocabulary.Computed.ALWAYS, !numbers.isAllowExplicitInsert());
      }
    }
  }

  /**
   * A column of a table.
   *
   * @param isOfStatement a statement shows it: with NOT NULL, which Spark is not told else
   * @param isDescribed its comment is to tell how it is computed
   */
  static Column shown(
      Column column, JsonNode computed, boolean isOfStatement, boolean isDescribed) {
    JsonNode how = computed.get(column.name());
    if (how == null) {
      return column;
    }
    boolean nullable =
        isOfStatement ? how.get(Vocabulary.Computed.NULLABLE).asBoolean() : column.nullable();
    String comment = column.comment();
    if (isDescribed) {
      String clause = how.get(Vocabulary.Computed.SQL).asText();
      comment = comment == null ? clause : clause + " COMMENT " + comment;
    }
    JsonNode numbers = how.get(Vocabulary.Computed.IDENTITY);
    if (numbers == null) {
      return Column.create(column.name(), column.dataType(), nullable, comment,
          how.get(Vocabulary.Computed.EXPRESSION).asText(), column.metadataInJSON());
    }
    IdentityColumnSpec spec = new IdentityColumnSpec(
        numbers.get(Vocabulary.Computed.START).asLong(),
        numbers.get(Vocabulary.Computed.STEP).asLong(),
        !numbers.get(Vocabulary.Computed.ALWAYS).asBoolean());
    return Column.create(
        column.name(), column.dataType(), nullable, comment, spec, column.metadataInJSON());
  }

  /** What SHOW CREATE TABLE shows. Spark leaves out how columns are computed. */
  static LogicalPlan created(ShowCreateTable statement, ResolvedTable resolved) {
    PlakeTable table = (PlakeTable) resolved.table();
    if (table.computed().isEmpty() || statement.asSerde()) {
      return statement;
    }
    String text =
        new ShowCreateTableExec(statement.output(), resolved).executeCollect()[0].getString(0);
    for (Column column : table.columns()) {
      JsonNode how = table.computed().get(column.name());
      if (how != null) {
        StructField plain =
            new StructField(column.name(), DataTypes.IntegerType, true, Metadata.empty());
        String ddl = plain.toDDL();
        String comment = column.comment() == null ? ""
            : plain.withComment(column.comment()).toDDL().substring(ddl.length());
        int line = text.indexOf("\n  " + ddl.substring(0, ddl.length() - "INT".length()));
        int next = text.indexOf(comment + ",\n", line);
        int last = text.indexOf(comment + ")\n", line);
        int end = next < 0 || last >= 0 && last < next ? last : next;
        text = text.substring(0, end) + " " + how.get(Vocabulary.Computed.SQL).asText()
            + text.substring(end);
      }
    }
    InternalRow row = new GenericInternalRow(new Object[] {UTF8String.fromString(text)});
    return new LocalRelation(statement.output(),
        asScala(List.of(row)).toSeq(), false, Option.empty());
  }

  private ComputedColumns() {}

  /**
   * Tells default values that differ from one INSERT to the next.
   *
   * <p>Spark evaluates the SQL of a default in each statement, and takes {@code
   * current_timestamp()} for a constant. plake keeps the value that other SQL had once, because it
   * also writes without Spark, and of these the text, which its own writers evaluate.
   */
  static final class ConstantDefaults {
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
        List<String> parts = asJava(name.nameParts());
        return changes(parts, 1) ? last(parts) : null;
      }
      if (expression instanceof UnresolvedFunction function) {
        List<String> parts = asJava(function.nameParts());
        return changes(parts, function.arguments().size()) ? last(parts) + "()" : null;
      }
      // With reserved words the parser knows them.
      String kind = expression.getClass().getSimpleName();
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
}
