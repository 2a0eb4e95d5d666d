package io.plake.spark.core;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A part of the extension that can fail without the others, and why it did.
 *
 * <p>A query whose part fails is slower and right. The first reason is kept for
 * {@code lakehouse_source.spark.status(spark)} and logged once per JVM.
 */
public enum Feature {
  PUSHDOWN(Vocabulary.Part.PUSHDOWN),
  AGGREGATES(Vocabulary.Part.AGGREGATES),
  FUNCTIONS(Vocabulary.Part.FUNCTIONS),
  JOIN_KEYS(Vocabulary.Part.JOIN_KEYS),
  BATCHES(Vocabulary.Part.BATCHES),
  DECIMALS(Vocabulary.Part.DECIMALS),
  VIEWS(Vocabulary.Part.VIEWS),
  STATEMENTS(Vocabulary.Part.STATEMENTS),
  CATALOG(Vocabulary.Part.CATALOG),
  CATALOG_VIEWS(Vocabulary.Part.CATALOG_VIEWS),
  PROVIDER(Vocabulary.Part.PROVIDER),
  READER(Vocabulary.Part.READER),
  METRICS(Vocabulary.Part.METRICS);

  private static final Logger LOG = LoggerFactory.getLogger("io.plake.spark.PlakeExtension");

  /** What {@code status} calls it. */
  public final String label;

  private String failure;

  Feature(String label) {
    this.label = label;
  }

  /** Keeps the first reason why the part was not used, and logs it. */
  public synchronized void failed(Throwable cause) {
    failed(cause.toString());
  }

  /** Keeps the first reason why the part was not used, and logs it. */
  public synchronized void failed(String reason) {
    if (failure == null) {
      failure = reason;
      LOG.warn("A part of plake's planner extension does not work, queries are slower and right."
          + " {}: {}", label, reason);
    }
  }

  /** Why the part was not used by some query of this JVM; null where it always was. */
  public synchronized String failure() {
    return failure;
  }
}
