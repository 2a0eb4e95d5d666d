package io.plake.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * What plake's planning answered to the question who should read a scan: files for Spark's own
 * Parquet reader, or tasks for Python.
 */
final class ReaderAnswer {

  /** How large the scan is. */
  final ScanStatistics statistics;

  /** How much of the table the scan reads. */
  final ScanCounts counts;

  /** Why this reader was chosen; null where that was not asked. */
  final String note;

  private final Set<String> keys;
  private final Map<?, ?> files;

  private ReaderAnswer(
      ScanStatistics statistics, ScanCounts counts, String note, List<?> keys,
      Map<?, ?> files) {
    this.counts = counts;
    this.statistics = statistics;
    this.note = note;
    this.keys = keys == null ? null : new HashSet<>();
    for (Object name : keys == null ? List.of() : keys) {
      this.keys.add((String) name);
    }
    this.files = files;
  }

  /** Reads what Python pickled: one {@code SparkFiles}, or the partitions of a scan by Python. */
  static ReaderAnswer of(Seq<byte[]> partitions, StructType columns, StructType full)
      throws IOException {
    ScanStatistics statistics = ScanStatistics.of(partitions, columns, full);
    Object first = partitions.isEmpty() ? null : new Unpickler().loads(partitions.head());
    if (!(first instanceof Map)) {
      return new ReaderAnswer(statistics, new ScanCounts(null), null, null, null);
    }
    Map<?, ?> state = (Map<?, ?>) first;
    String note = (String) state.get(Vocabulary.Pickle.NOTE);
    return new ReaderAnswer(
        statistics, new ScanCounts((Map<?, ?>) state.get(Vocabulary.Pickle.COUNTS)), note,
        (List<?>) state.get(Vocabulary.Pickle.KEY_COLUMNS),
        state.containsKey(Vocabulary.Files.PATHS) ? state : null);
  }

  /** Columns by which keys of a join may prune the scan; null where any may, or was not asked. */
  Set<String> keyColumns() {
    return keys;
  }

  boolean isSpark() {
    return files != null;
  }

  String root() {
    return (String) files.get(Vocabulary.Files.ROOT);
  }

  /** Paths of files, relative to the root. */
  List<?> paths() {
    return list(Vocabulary.Files.PATHS);
  }

  /** In bytes, in the order of the paths. */
  List<?> sizes() {
    return list(Vocabulary.Files.SIZES);
  }

  /** The columns that the files do not have. */
  List<?> partitioned() {
    return list(Vocabulary.Files.PARTITIONED);
  }

  /** Lists of texts: the values of those columns. */
  List<?> values() {
    return list(Vocabulary.Files.VALUES);
  }

  /** For each file the place of its values. */
  List<?> valuesOf() {
    return list(Vocabulary.Files.VALUES_OF);
  }

  /** Columns whose conditions Spark must not push into Parquet. */
  List<?> unpushed() {
    return list(Vocabulary.Files.UNPUSHED);
  }

  /** The columns that tell where a row is stored, with plake's names for them. */
  Map<?, ?> places() {
    return (Map<?, ?>) files.get(Vocabulary.Files.PLACES);
  }

  /** For each file its first row id and the version that added it, where places are read. */
  List<?> identities() {
    return list(Vocabulary.Files.IDENTITIES);
  }

  /** How files store the columns, by the numbers in {@link #layoutOf}. */
  List<PlakeParquet.Layout> layouts() {
    List<PlakeParquet.Layout> found = new ArrayList<>();
    for (Object changed : list(Vocabulary.Files.LAYOUTS)) {
      found.add(new PlakeParquet.Layout((Map<?, ?>) changed, places()));
    }
    for (int i = 0; i < layoutOf().size(); i++) {
      found.get(((Number) layoutOf().get(i)).intValue()).add(deleted().get(i) != null);
    }
    return found;
  }

  /** For each file the number of its layout. */
  List<?> layoutOf() {
    return list(Vocabulary.Files.LAYOUT_OF);
  }

  /** For each file where its deletion vector is; null where it has none. */
  List<?> deleted() {
    return list(Vocabulary.Files.DELETED);
  }

  private List<?> list(String key) {
    return (List<?>) files.get(key);
  }
}
