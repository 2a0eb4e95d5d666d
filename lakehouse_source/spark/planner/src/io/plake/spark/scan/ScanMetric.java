package io.plake.spark.scan;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** A count that a scan reports to Spark. Spark's UI makes one by the name of this class. */
public final class ScanMetric extends CustomSumMetric {
  private final String name;
  private final String description;

  public ScanMetric() {
    this("", "");
  }

  ScanMetric(String name, String description) {
    this.name = name;
    this.description = description;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }
}
