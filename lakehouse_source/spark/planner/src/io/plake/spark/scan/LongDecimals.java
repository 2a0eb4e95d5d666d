package io.plake.spark.scan;

import io.plake.spark.core.Part;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads decimals of up to 18 digits as longs without their scale, and lets Spark's own code make
 * decimals of them.
 *
 * <p>Spark reads an Arrow decimal of 16 bytes through a {@code BigDecimal} for every value, which
 * is most of the cost of such a scan. Spark's Parquet reader makes decimals from longs too.
 *
 * <p>This is a strategy and not an optimizer rule, because it has to run after Spark has chosen
 * filters and columns. It hands a changed logical plan back to Spark's planner.
 */
public final class LongDecimals extends SparkStrategy {

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    LogicalPlan leaf = Relations.leaf(plan);
    List<SparkPlan> planned = Collections.emptyList();
    if (leaf instanceof DataSourceV2ScanRelation && Relations.isOn()) {
      try {
        LogicalPlan changed = change((DataSourceV2ScanRelation) leaf);
        if (changed != null) {
          planned = List.of(planLater(plan.transformUp(
              new Rewrite<>(node -> node == leaf ? changed : node))));
        }
      } catch (LinkageError | ReflectiveOperationException | RuntimeException e) {
        Part.DECIMALS.failed(e);
      }
    }
    return CollectionConverters.asScala(planned).toSeq();
  }

  /** Whether a type has decimals that a long can hold. */
  static boolean fits(DataType type) {
    return type instanceof DecimalType && ((DecimalType) type).precision() <= 18;
  }

  private static LogicalPlan change(DataSourceV2ScanRelation relation)
      throws ReflectiveOperationException {
    if (!(relation.scan() instanceof IsolatedScan)) {
      return null;
    }
    IsolatedScan longs = ((IsolatedScan) relation.scan()).withLongs();
    if (longs == null) {
      return null;
    }
    List<AttributeReference> output = new ArrayList<>();
    List<NamedExpression> project = new ArrayList<>();
    for (Iterator<AttributeReference> it = relation.output().iterator(); it.hasNext(); ) {
      AttributeReference column = it.next();
      if (!fits(column.dataType())) {
        output.add(column);
        project.add(column);
        continue;
      }
      DecimalType type = (DecimalType) column.dataType();
      AttributeReference number = new AttributeReference(
          column.name(), DataTypes.LongType, column.nullable(), column.metadata(),
          NamedExpression.newExprId(), column.qualifier());
      output.add(number);
      project.add(new Alias(
          new MakeDecimal(number, type.precision(), type.scale(), true), column.name(),
          column.exprId(), column.qualifier(), Option.apply(column.metadata()),
          CollectionConverters.asScala(List.<String>of()).toSeq()));
    }
    return new Project(
        CollectionConverters.asScala(project).toSeq(),
        copy(relation, longs, CollectionConverters.asScala(output).toSeq()));
  }

  /**
   * The relation with another scan. The number of its other fields differs between versions of
   * Spark.
   */
  private static LogicalPlan copy(
      DataSourceV2ScanRelation relation, IsolatedScan scan, Seq<AttributeReference> output)
      throws ReflectiveOperationException {
    CopyMethod copy = CopyMethod.get();
    Object[] fields = new Object[copy.defaults.length];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = copy.defaults[i].invoke(relation);
    }
    fields[1] = scan;
    fields[2] = output;
    return (LogicalPlan) copy.method.invoke(relation, fields);
  }

  /** Fails where this Spark has no such relation. */
  public static void check() throws ReflectiveOperationException {
    CopyMethod.get();
  }

  /** The copy method of the relation, whose parameters Java cannot name. Looked up once. */
  private static final class CopyMethod {
    private static volatile CopyMethod found;

    private final Method method;
    private final Method[] defaults;

    private CopyMethod() throws NoSuchMethodException {
      Method copy = null;
      for (Method candidate : DataSourceV2ScanRelation.class.getMethods()) {
        copy = candidate.getName().equals("copy") ? candidate : copy;
      }
      if (copy == null) {
        throw new NoSuchMethodException("copy");
      }
      method = copy;
      defaults = new Method[copy.getParameterCount()];
      for (int i = 0; i < defaults.length; i++) {
        defaults[i] = DataSourceV2ScanRelation.class.getMethod("copy$default$" + (i + 1));
      }
    }

    static CopyMethod get() throws NoSuchMethodException {
      if (found == null) {
        found = new CopyMethod();
      }
      return found;
    }
  }
}
