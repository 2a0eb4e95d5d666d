package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;

/**
 * Takes away the projection by which Spark pads CHAR columns of a relation.
 *
 * <p>Spark puts it above each relation with such columns at the end of an analysis. A temporary
 * view keeps the analysed plan, so there it stands between the view and its relation, whose columns
 * have lost what says that they are CHAR. With that, the relation alone is padded again by the
 * analysis of the query that it is put into.
 */
public final class CharPadding {

  private static final String FUNCTION = "readSidePadding";

  /** The relation below a padding, with the ids that the padding shows; any other plan as it is. */
  public static LogicalPlan below(LogicalPlan plan) {
    if (!(plan instanceof Project project) || !Relations.isOurs(project.child())) {
      return plan;
    }
    DataSourceV2Relation relation = (DataSourceV2Relation) project.child();
    if (project.projectList().size() != relation.output().size()) {
      return plan;
    }
    List<AttributeReference> columns = new ArrayList<>();
    var shown = project.projectList().iterator();
    for (AttributeReference column : asJava(relation.output())) {
      NamedExpression one = shown.next();
      if (!one.exprId().equals(column.exprId())) {
        if (!isPadded(one, column)) {
          return plan;
        }
        column = column.withExprId(one.exprId())
            .withMetadata(((PythonTable) relation.table()).schema().apply(column.name()).metadata());
      }
      columns.add(column);
    }
    return Relations.copy(relation, columns);
  }

  private static boolean isPadded(NamedExpression one, AttributeReference column) {
    return one instanceof Alias alias && alias.name().equals(column.name())
        && alias.references().contains(column) && alias.child().exists(
            part -> part instanceof StaticInvoke call && call.functionName().equals(FUNCTION));
  }
}
