package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
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

  private static final Map<String, String> DESCRIPTIONS = new LinkedHashMap<>();

  static {
    DESCRIPTIONS.put(Vocabulary.Count.FILES, "files of the table");
    DESCRIPTIONS.put(Vocabulary.Count.FILES_BY_PARTITION, "files pruned by partition values");
    DESCRIPTIONS.put(Vocabulary.Count.FILES_BY_STATISTICS, "files pruned by statistics");
    DESCRIPTIONS.put(Vocabulary.Count.FILES_BY_JOIN_KEYS, "files pruned by keys of a join");
    DESCRIPTIONS.put(Vocabulary.Count.FILES_READ, "files to read");
    DESCRIPTIONS.put(Vocabulary.Count.ROW_GROUPS, "row groups of the table");
    DESCRIPTIONS.put(Vocabulary.Count.ROW_GROUPS_PRUNED, "row groups pruned");
    DESCRIPTIONS.put(Vocabulary.Count.ROW_GROUPS_READ, "row groups to read");
  }

  private final Map<String, Long> values = new LinkedHashMap<>();

  /** @param pickled numbers by the names in {@link Vocabulary.Count}; null: nothing is known */
  ScanCounts(Map<?, ?> pickled) {
    if (pickled != null) {
      for (String name : DESCRIPTIONS.keySet()) {
        Number value = (Number) pickled.get(name);
        values.put(name, value == null ? 0 : value.longValue());
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

  /** The metrics that a scan by Python has. */
  static List<ScanMetric> metrics() {
    List<ScanMetric> found = new ArrayList<>();
    for (Map.Entry<String, String> one : DESCRIPTIONS.entrySet()) {
      found.add(new ScanMetric(one.getKey(), one.getValue()));
    }
    return found;
  }

  /** Their values. */
  List<CustomTaskMetric> reported() {
    List<CustomTaskMetric> found = new ArrayList<>();
    for (Map.Entry<String, Long> one : values.entrySet()) {
      found.add(new Reported(one.getKey(), one.getValue()));
    }
    return found;
  }

  /** New metrics of Spark, by name. */
  public Map<String, SQLMetric> inPlan(SparkContext context) {
    Map<String, SQLMetric> found = new LinkedHashMap<>();
    for (String name : values.keySet()) {
      found.put(name, SQLMetrics.createMetric(context, DESCRIPTIONS.get(name)));
    }
    set(found);
    return found;
  }

  /** Sets metrics that {@link #inPlan} made. Spark resets them before a plan runs. */
  public void set(Map<String, SQLMetric> metrics) {
    metrics.forEach((name, metric) -> metric.set(values.get(name)));
  }

  private record Reported(String name, long value) implements CustomTaskMetric {}
}
