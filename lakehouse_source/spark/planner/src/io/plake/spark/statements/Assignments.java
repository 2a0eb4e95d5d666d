package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import com.fasterxml.jackson.databind.JsonNode;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * What an UPDATE or MERGE assigns.
 *
 * <p>It gives NULL to a column that plake computes, where it assigns nothing to it: the old value
 * would be that of the old row. plake's writer computes what is NULL. Numbers that are always
 * generated stay: an update that assigns them is refused.
 */
final class Assignments {
  private final JsonNode computed;
  private final List<Attribute> columns;
  private final LogicalPlan table;

  private Assignments(JsonNode computed, List<Attribute> columns, LogicalPlan table) {
    this.computed = computed;
    this.columns = columns;
    this.table = table;
  }

  static LogicalPlan added(LogicalPlan statement, DataSourceV2Relation target) {
    JsonNode computed = ((StatementTable) target.table()).computed;
    if (computed.isEmpty()) {
      return statement;
    }
    List<Attribute> columns = asJava(target.output()).stream()
        .filter(one -> computed.has(one.name())).map(one -> (Attribute) one).toList();
    Assignments all = new Assignments(computed, columns, statement.children().head());
    if (statement instanceof UpdateTable update) {
      return Rewrite.copy((LogicalPlan) update, part ->
          part == update.assignments() ? all.with(update.assignments()) : part);
    }
    return statement.transformExpressions(new Rewrite<>((Expression part) ->
        part instanceof UpdateAction action
            ? Rewrite.copy((Expression) action, inside ->
                inside == action.assignments() ? all.with(action.assignments()) : inside)
            : part));
  }

  private Seq<Assignment> with(Seq<Assignment> given) {
    List<Assignment> all = new ArrayList<>(asJava(given));
    for (Attribute column : columns) {
      boolean isAssigned = asJava(given).stream().anyMatch(one -> isOf(one.key(), column));
      JsonNode numbers = computed.get(column.name()).get(Vocabulary.Computed.IDENTITY);
      if (numbers == null && !isAssigned) {
        all.add(new Assignment(column, new Literal(null, column.dataType())));
      } else if (numbers != null && isAssigned
          && numbers.get(Vocabulary.Computed.ALWAYS).asBoolean()) {
        throw Refusal.because("An UPDATE or MERGE of plake cannot assign the column "
            + column.name() + ", whose numbers are GENERATED ALWAYS AS IDENTITY. Name the columns"
            + " to assign, without it.");
      }
    }
    return all.size() == given.size() ? given : asScala(all).toSeq();
  }

  private boolean isOf(Expression key, Attribute column) {
    if (key instanceof UnresolvedAttribute name) {
      return table.resolve(name.nameParts().toSeq(), SQLConf.get().resolver())
          .exists(found -> found.exprId().equals(column.exprId()));
    }
    return key instanceof Attribute known && known.exprId().equals(column.exprId());
  }

  /**
   * Undoes the casts that Spark has put around structs that an UPDATE or MERGE assigns.
   *
   * <p>A cast takes fields by their places: {@code SET s = named_struct('b', 1, 'a', 2)} would give 1
   * to the first field. Spark casts where it sees an assignment before the target is a table whose
   * rows can be changed. For such a table it brings fields together by name.
   */
  static Expression withoutCast(Expression node) {
    if (!(node instanceof Assignment given) || !given.key().resolved()
        || !given.key().dataType().existsRecursively(type -> type instanceof StructType)) {
      return node;
    }
    // Spark's cast may be below checks of the length of texts. One that is not possible by places is
    // not resolved.
    var cast = given.value().find(part -> part instanceof Cast one
        && one.getTagValue(Cast$.MODULE$.BY_TABLE_INSERTION()).isDefined());
    return cast.isEmpty() || !((Cast) cast.get()).child().resolved() ? node
        : new Assignment(given.key(), ((Cast) cast.get()).child());
  }
}
