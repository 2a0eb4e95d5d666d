package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.WriteCommands;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes {@code mode("overwrite").option("replaceWhere", …).saveAsTable(t)} replace rows of a table
 * that is there, as {@code save(path)} does.
 *
 * <p>Spark plans {@code saveAsTable} as a new table in the place of the old one. The condition stays an
 * option, which plake's writer reads.
 */
public final class ReplaceWhereByName extends Rule<LogicalPlan> {
  private static final Set<String> CONDITIONS = Set.of("replaceWhere", "overwriteWhere");

  private final SparkSession session;

  public ReplaceWhereByName(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof ReplaceTableAsSelect made) || !Relations.isOn()
        || !(made.name() instanceof UnresolvedIdentifier name)) {
      return plan;
    }
    Map<String, String> options = new HashMap<>(CollectionConverters.asJava(made.writeOptions()));
    if (CONDITIONS.stream().noneMatch(new CaseInsensitiveStringMap(options)::containsKey)) {
      return plan;
    }
    ChangesByName.Found found =
        ChangesByName.find(session, CollectionConverters.asJava(name.nameParts()));
    if (found == null) {
      return plan; // a new table, or one of another format
    }
    List<String> given = TableRequests.columns(
        CollectionConverters.asJava(made.partitioning()).toArray(new Transform[0]));
    if (!given.isEmpty() && !given.equals(List.of(found.table().partitionSchema().fieldNames()))) {
      throw Refusal.because("The rows of " + found.table().name() + " are partitioned by "
          + List.of(found.table().partitionSchema().fieldNames()) + ", and partitionBy names " + given
          + ": leave it out where rows are replaced.");
    }
    UnresolvedRelation target = new UnresolvedRelation(
        name.nameParts(), CaseInsensitiveStringMap.empty(), false)
        .requireWritePrivileges(scala.collection.immutable.Set.from(CollectionConverters.asScala(
            Set.of(TableWritePrivilege.INSERT, TableWritePrivilege.DELETE))));
    return WriteCommands.made(
        OverwriteByExpression.class, true, target, Literal$.MODULE$.TrueLiteral(), made.query(),
        made.writeOptions());
  }
}
