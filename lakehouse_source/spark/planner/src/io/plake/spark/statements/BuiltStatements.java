package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedHint;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import scala.Some;

/**
 * The statements of {@code lake.spark.PlakeTable}, as Spark's parser would make them of SQL.
 *
 * <p>Python makes all of them by {@code DataFrame.mergeInto}, which takes columns, classic and
 * through Connect. That method knows no name for its target, and neither UPDATE nor DELETE: a hint
 * around the source tells them.
 */
public final class BuiltStatements extends Rule<LogicalPlan> {
  /** Options of the write that the statement itself names. */
  static final TreeNodeTag<Map<String, String>> OPTIONS = new TreeNodeTag<>("plake.options");

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof UnresolvedHint hint && isOurs(hint)) {
      return hint.child(); // the source alone, as Spark makes its frame
    }
    return plan instanceof MergeIntoTable merge && merge.sourceTable() instanceof UnresolvedHint hint
        && isOurs(hint) && Relations.isOn() ? statement(merge, hint) : plan;
  }

  private static boolean isOurs(UnresolvedHint hint) {
    return hint.name().equalsIgnoreCase(Vocabulary.Built.HINT) && hint.parameters().size() == 1;
  }

  private static LogicalPlan statement(MergeIntoTable merge, UnresolvedHint hint) {
    Expression parameter = hint.parameters().head();
    Map<String, String> given = Envelope.texts(String.valueOf(parameter.eval(null)));
    String alias = given.remove(Vocabulary.Built.ALIAS);
    LogicalPlan target = alias == null ? merge.targetTable()
        : new SubqueryAlias(new AliasIdentifier(alias), merge.targetTable());
    LogicalPlan made = switch (given.remove(Vocabulary.Built.COMMAND)) {
      case Vocabulary.Command.DELETE -> new DeleteFromTable(target, merge.mergeCondition());
      case Vocabulary.Command.UPDATE -> new UpdateTable(target,
          ((UpdateAction) merge.matchedActions().head()).assignments(),
          new Some<>(merge.mergeCondition()));
      default -> merge.withNewChildren(asScala(List.of(target, hint.child())).toSeq());
    };
    made.setTagValue(OPTIONS, given);
    return made;
  }
}
