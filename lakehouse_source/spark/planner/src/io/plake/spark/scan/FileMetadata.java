package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.FrameTable;
import io.plake.spark.core.HiddenColumns;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InputFileName;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SubstringIndex;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/**
 * Makes {@code _metadata} and {@code input_file_name()} of columns that plake's readers give.
 *
 * <p>Runs while Spark optimizes, which then reads only the columns of the fields that a query
 * names. Spark's own {@code input_file_name()} asks the task which file it reads; a task of plake's
 * reader in Python has several, and rows of one file may come after the next is open.
 */
public final class FileMetadata extends Rule<LogicalPlan> {
  /** Spark's mark of a metadata column: a column of the user's has another meaning. */
  private static final String HIDDEN = "__metadata_col";

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.transformUp(new Rewrite<>(FileMetadata::changed));
  }

  private static LogicalPlan changed(LogicalPlan node) {
    if (node instanceof DataSourceV2Relation relation) {
      return withStruct(relation);
    }
    boolean asks = node.children().size() == 1 && asJava(node.expressions())
        .stream().anyMatch(one -> one.exists(part -> part instanceof InputFileName));
    Named below = asks ? named(node.children().head()) : null;
    if (below == null) {
      return node;
    }
    LogicalPlan made = node.withNewChildren(seq(List.of(below.plan)))
        .transformExpressions(new Rewrite<>(
            part -> part instanceof InputFileName ? below.uri : part));
    return made.output().size() == node.output().size()
        ? made : new Project(seq(new ArrayList<NamedExpression>(asJava(node.output()))), made);
  }

  /** A plan with the URI of each row's file as one more column. */
  private record Named(LogicalPlan plan, Attribute uri) {}

  /** Down to a table of plake; null where rows of several tables, or of none, come together. */
  private static Named named(LogicalPlan plan) {
    if (plan instanceof DataSourceV2Relation relation) {
      Map<String, StructField> hidden = hidden(relation);
      if (!hidden.containsKey(Vocabulary.MetadataColumn.FILE_URI)) {
        return null;
      }
      List<AttributeReference> output = new ArrayList<>(asJava(relation.output()));
      AttributeReference uri = column(output, hidden.get(Vocabulary.MetadataColumn.FILE_URI));
      return new Named(Relations.copy(relation, output), uri);
    }
    boolean isNarrow = plan instanceof Project || plan instanceof Filter || plan instanceof Sample
        || plan instanceof Generate;
    Named below = isNarrow ? named(plan.children().head()) : null;
    if (below == null) {
      return null;
    }
    if (plan instanceof Project project) {
      List<NamedExpression> columns = new ArrayList<>(asJava(project.projectList()));
      if (!project.outputSet().contains(below.uri)) {
        columns.add(below.uri);
      }
      return new Named(new Project(seq(columns), below.plan), below.uri);
    }
    return new Named(plan.withNewChildren(seq(List.of(below.plan))), below.uri);
  }

  private static LogicalPlan withStruct(DataSourceV2Relation relation) {
    Map<String, StructField> hidden = hidden(relation);
    List<AttributeReference> output = new ArrayList<>(asJava(relation.output()));
    AttributeReference struct = null;
    for (AttributeReference column : output) {
      if (column.name().equals(HiddenColumns.STRUCT.name()) && column.metadata().contains(HIDDEN)) {
        struct = column;
      }
    }
    if (struct == null || !hidden.containsKey(Vocabulary.MetadataColumn.FILE_URI)) {
      return relation;
    }
    List<NamedExpression> shown = new ArrayList<>(output);
    output.remove(struct);
    Expression uri = column(output, hidden.get(Vocabulary.MetadataColumn.FILE_URI));
    Expression[] fields = {
      uri, new SubstringIndex(uri, literal("/"), Literal.create(-1, DataTypes.IntegerType)),
      column(output, hidden.get(Vocabulary.MetadataColumn.FILE_SIZE)),
      column(output, hidden.get(Vocabulary.MetadataColumn.POSITION)),
      column(output, hidden.get(Vocabulary.MetadataColumn.ROW)),
      column(output, hidden.get(Vocabulary.MetadataColumn.COMMIT)),
    };
    String[] names = ((StructType) HiddenColumns.STRUCT.dataType()).fieldNames();
    List<Expression> parts = new ArrayList<>();
    for (int i = 0; i < fields.length; i++) {
      parts.add(literal(names[i]));
      parts.add(fields[i]);
    }
    shown.set(shown.indexOf(struct), new Alias(
        new CreateNamedStruct(seq(parts)), struct.name(), struct.exprId(), struct.qualifier(),
        Option.apply(struct.metadata()), seq(List.of())));
    return new Project(seq(shown), Relations.copy(relation, output));
  }

  private static Map<String, StructField> hidden(DataSourceV2Relation relation) {
    Object table = relation.table() instanceof RowLevelOperationTable target
        ? target.table() : relation.table();
    return table instanceof FrameTable placed ? placed.hidden() : Map.of();
  }

  /** The column of a relation that reads a hidden one; it is added where there is none. */
  private static AttributeReference column(List<AttributeReference> output, StructField field) {
    for (AttributeReference column : output) {
      if (column.name().equals(field.name())) {
        return column;
      }
    }
    AttributeReference added = DataTypeUtils.toAttribute(field);
    output.add(added);
    return added;
  }

  private static Literal literal(String text) {
    return Literal.create(UTF8String.fromString(text), DataTypes.StringType);
  }

  private static <T> scala.collection.immutable.Seq<T> seq(List<T> all) {
    return asScala(all).toSeq();
  }
}
