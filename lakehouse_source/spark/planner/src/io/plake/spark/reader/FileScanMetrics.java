package io.plake.spark.reader;

import io.plake.spark.core.Feature;
import io.plake.spark.core.Vocabulary;
import java.lang.reflect.Field;
import java.util.Map;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

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

  /** Scala puts the name of the trait before that of a private field. */
  private static Field field(String name) throws NoSuchFieldException {
    for (Field field : FileSourceScanExec.class.getDeclaredFields()) {
      if (field.getName().equals(name) || field.getName().endsWith("$$" + name)) {
        field.setAccessible(true);
        return field;
      }
    }
    throw new NoSuchFieldException(name);
  }

  private static final class Add extends Rule<SparkPlan> {
    @Override
    public SparkPlan apply(SparkPlan plan) {
      for (Iterator<SparkPlan> it = plan.collectLeaves().iterator(); it.hasNext(); ) {
        SparkPlan leaf = it.next();
        if (leaf instanceof FileSourceScanExec
            && ((FileSourceScanExec) leaf).relation() instanceof PlakeFiles.Relation) {
          try {
            add((FileSourceScanExec) leaf);
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
      return ((scala.collection.immutable.Map<String, SQLMetric>) made)
          .concat(CollectionConverters.asScala(more));
    }
  }
}
