package io.plake.spark.core;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSession;

/**
 * The last write of each session that plake committed, for {@code lake.spark.last_commit}.
 *
 * <p>Spark gives a statement that writes no way to answer rows.
 */
public final class LastCommit {
  private static final Map<SparkSession, byte[]> WRITERS =
      Collections.synchronizedMap(new WeakHashMap<>());

  static void put(byte[] writer) {
    WRITERS.put(SparkSession.active(), writer);
  }

  /** What follows is no write of Spark: its result says what it did. */
  static void forget() {
    WRITERS.remove(SparkSession.active());
  }

  /** The writer as Python pickled it; null where the session has written nothing. */
  public static byte[] of(SparkSession session) {
    return WRITERS.get(session);
  }
}
