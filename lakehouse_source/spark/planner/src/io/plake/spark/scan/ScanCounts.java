package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;

/** How many files and row groups planning left out of a scan, and by what: metrics of its node. */
public final class ScanCounts {
  /** Of a single row group, a condition leaves out nothing or all. */
  private static final int SEVERAL = 2;

  /** The metrics that a scan by Python has. */
  static final List<ScanMetric> METRICS = List.of(
      new ScanMetric(Vocabulary.Count.FILES, "files of the table"),
      new ScanMetric(Vocabulary.Count.FILES_BY_PARTITION, "files pruned by partition values"),
      new ScanMetric(Vocabulary.Count.FILES_BY_STATISTICS, "files pruned by statistics"),
      new ScanMetric(Vocabulary.Count.FILES_BY_JOIN_KEYS, "files pruned by keys of a join"),
      new ScanMetric(Vocabulary.Count.FILES_READ, "files to read"),
      new ScanMetric(Vocabulary.Count.ROW_GROUPS, "row groups of the table"),
      new ScanMetric(Vocabulary.Count.ROW_GROUPS_PRUNED, "row groups pruned"),
      new ScanMetric(Vocabulary.Count.ROW_GROUPS_READ, "row groups to read"));

  private final Map<String, Long> values = new LinkedHashMap<>();

  /** @param pickled numbers by the names in {@link Vocabulary.Count}; null: nothing is known */
  ScanCounts(Map<?, ?> pickled) {
    if (pickled != null) {
      for (ScanMetric metric : METRICS) {
        Number value = (Number) pickled.get(metric.name());
        values.put(metric.name(), value == null ? 0 : value.longValue());
      }
    }
  }

  /** The counts of this scan after keys of a join have pruned more of it. */
  ScanCounts prunedByKeys(ScanCounts pruned) {
    ScanCounts both = new ScanCounts(values.isEmpty() || pruned.values.isEmpty() ? null : values);
    if (!both.values.isEmpty()) {
      for (String name : List.of(
          Vocabulary.Count.FILES_READ, Vocabulary.Count.ROW_GROUPS_READ,
          Vocabulary.Count.ROW_GROUPS_PRUNED)) {
        both.values.put(name, pruned.values.get(name));
      }
      both.values.put(
          Vocabulary.Count.FILES_BY_JOIN_KEYS,
          values.get(Vocabulary.Count.FILES_READ) - pruned.values.get(Vocabulary.Count.FILES_READ));
    }
    return both;
  }

  /** Whether the table has several row groups, and the scan reads more than half of them. */
  public boolean readMost() {
    long all = values.getOrDefault(Vocabulary.Count.ROW_GROUPS, 0L);
    return all >= SEVERAL && 2 * values.get(Vocabulary.Count.ROW_GROUPS_READ) > all;
  }

  /** The values of {@link #METRICS}. */
  List<Reported> reported() {
    return values.entrySet().stream()
        .map(one -> new Reported(one.getKey(), one.getValue())).toList();
  }

  /** New metrics of Spark, by name. */
  public Map<String, SQLMetric> inPlan(SparkContext context) {
    Map<String, SQLMetric> found = new LinkedHashMap<>();
    if (!values.isEmpty()) {
      METRICS.forEach(metric -> found.put(
          metric.name(), SQLMetrics.createMetric(context, metric.description())));
    }
    set(found);
    return found;
  }

  /** Sets metrics that {@link #inPlan} made. Spark resets them before a plan runs. */
  public void set(Map<String, SQLMetric> metrics) {
    metrics.forEach((name, metric) -> metric.set(values.get(name)));
  }

  record Reported(String name, long value) implements CustomTaskMetric {}
}
