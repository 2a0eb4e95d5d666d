package io.plake.spark.reader;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Feature;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import java.lang.reflect.Field;
import java.util.Map;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;

/**
 * Shows on scans by Spark's own reader how much plake's planning left out of them.
 *
 * <p>Spark's node has no place for metrics of others. They are put among those that it sends when
 * it runs. A copy of the node loses them, so this runs after the rules of Spark that make copies.
 */
public final class FileScanMetrics extends ColumnarRule {

  @Override
  public Rule<SparkPlan> postColumnarTransitions() {
    return new Add();
  }

  /**
   * Looks for the fields of Spark that are changed.
   *
   * @throws ReflectiveOperationException this Spark lacks one
   */
  public static void check() throws ReflectiveOperationException {
    field("driverMetrics");
    field("scanMetrics");
  }

  private static Field field(String name) throws NoSuchFieldException {
    return Relations.field(FileSourceScanExec.class, name);
  }

  private static final class Add extends Rule<SparkPlan> {
    @Override
    public SparkPlan apply(SparkPlan plan) {
      for (SparkPlan leaf : asJava(plan.collectLeaves())) {
        if (leaf instanceof FileSourceScanExec scan
            && scan.relation() instanceof PlakeFiles.Relation) {
          try {
            add(scan);
          } catch (LinkageError | ReflectiveOperationException | RuntimeException e) {
            Feature.METRICS.failed(e);
          }
        }
      }
      return plan;
    }

    private static void add(FileSourceScanExec scan) throws ReflectiveOperationException {
      if (scan.driverMetrics().contains(Vocabulary.Count.FILES)) {
        return;
      }
      scan.metrics(); // makes the maps
      Map<String, SQLMetric> more =
          ((PlakeFiles) scan.relation().location()).metrics(scan.session().sparkContext());
      for (String name : new String[] {"driverMetrics", "scanMetrics"}) {
        Field field = field(name);
        Object made = field.get(scan);
        if (made instanceof scala.collection.immutable.Map) { // not where it is made on demand
          field.set(scan, with(made, more));
        }
      }
    }

    @SuppressWarnings("unchecked")
    private static Object with(Object made, Map<String, SQLMetric> more) {
      return ((scala.collection.immutable.Map<String, SQLMetric>) made).concat(asScala(more));
    }
  }
}
