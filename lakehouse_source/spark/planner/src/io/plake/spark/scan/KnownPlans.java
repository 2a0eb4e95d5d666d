package io.plake.spark.scan;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.Vocabulary;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The read plans that Python made of late: the same scan of the same version has the same plan.
 *
 * <p>A request to Python takes 4 to 20 ms. The key is all that Python is told: the pickled frame,
 * which names the dataset, its version and the write that made it, the columns with the request in
 * them, and the settings of the session that Spark sends along. Frames of which an answer may
 * change while their version does not say so, and are asked each time.
 */
final class KnownPlans {
  private static final int MOST_PLANS = 256;
  private static final long MOST_BYTES = 32L << 20;

  /** What Spark sends to a worker that plans, besides the frame and the columns. */
  private static final List<String> SETTINGS = List.of(
      "spark.sql.execution.arrow.maxRecordsPerBatch",
      "spark.sql.execution.pyspark.binaryAsBytes",
      "spark.sql.python.filterPushdown.enabled",
      "spark.sql.pyspark.dataSource.profiler");

  private static final Map<Key, Plan> KNOWN = new LinkedHashMap<>(16, 0.75f, true);
  private static long bytes = 0;

  private KnownPlans() {}

  /** Everything on which the plan of a scan depends. */
  record Key(ByteBuffer frame, StructType request, List<String> settings) {}

  private record Plan(PythonDataSourceReadInfo info, long bytes) {}

  /**
   * @param frame the pickled frame
   * @param request the columns, with what is pushed down
   * @return null where the answer of the frame may change
   */
  static Key key(byte[] frame, StructType request) {
    Map<?, ?> told = Envelope.responseIn(frame);
    if (told == null || !Boolean.TRUE.equals(told.get(Vocabulary.ScanResponse.REPEATS))) {
      return null;
    }
    SQLConf conf = SQLConf.get();
    return new Key(ByteBuffer.wrap(frame), request,
        SETTINGS.stream()
            .map(name -> conf.contains(name) ? conf.getConfString(name) : "").toList());
  }

  /** The plan of a scan; null where it is not known. */
  static synchronized PythonDataSourceReadInfo get(Key key) {
    Plan known = KNOWN.get(key);
    return known == null ? null : known.info();
  }

  static synchronized void put(Key key, PythonDataSourceReadInfo info) {
    long size = key.frame().capacity() + key.request().json().length() + info.func().length;
    for (byte[] partition : CollectionConverters.asJava(info.partitions())) {
      size += partition.length;
    }
    remove(key);
    KNOWN.put(key, new Plan(info, size));
    bytes += size;
    Iterator<Map.Entry<Key, Plan>> oldest = KNOWN.entrySet().iterator();
    while (KNOWN.size() > MOST_PLANS || bytes > MOST_BYTES) {
      bytes -= oldest.next().getValue().bytes();
      oldest.remove();
    }
  }

  static synchronized void remove(Key key) {
    Plan known = KNOWN.remove(key);
    bytes -= known == null ? 0 : known.bytes();
  }
}
