package io.plake.spark.scan;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.Vocabulary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * What plake's planning answered to the request who should read a scan: files for Spark's own
 * Parquet reader, or tasks for Python.
 */
public final class ReaderResponse {

  /** How large the scan is. */
  final ScanStatistics statistics;

  /** How much of the table the scan reads. */
  public final ScanCounts counts;

  /** Why this reader was chosen; null where that was not asked. */
  public final String note;

  /** The most values and bytes of a scan that is small. One task decodes a million in 25 ms. */
  private static final long FEW_VALUES = 1_000_000;
  private static final long FEW_BYTES = 16L << 20;

  private final Set<String> keys;
  private final Map<?, ?> files;
  private final int width;

  private ReaderResponse(
      ScanStatistics statistics, ScanCounts counts, String note, List<?> keys,
      Map<?, ?> files, int width) {
    this.width = width;
    this.counts = counts;
    this.statistics = statistics;
    this.note = note;
    this.keys = keys == null ? null
        : keys.stream().map(String.class::cast).collect(Collectors.toSet());
    this.files = files;
  }

  /** The answer in the first partition that Python made; Spark's own of an empty scan has none. */
  static ReaderResponse of(Seq<byte[]> partitions, StructType columns, StructType full) {
    Map<?, ?> body = partitions.isEmpty() ? null : Envelope.responseIn(partitions.head());
    if (body == null) {
      return new ReaderResponse(
          ScanStatistics.of(0, 0, columns, full), new ScanCounts(null), null, null, null,
          columns.length());
    }
    return new ReaderResponse(
        ScanStatistics.of(
            ((Number) body.get(Vocabulary.ScanResponse.ROW_COUNT)).longValue(),
            ((Number) body.get(Vocabulary.ScanResponse.BYTE_COUNT)).longValue(), columns, full),
        new ScanCounts((Map<?, ?>) body.get(Vocabulary.ScanResponse.COUNTS)),
        (String) body.get(Vocabulary.ScanResponse.NOTE),
        (List<?>) body.get(Vocabulary.ScanResponse.KEY_COLUMNS),
        body.containsKey(Vocabulary.Files.PATHS) ? body : null, columns.length());
  }

  /** Columns by which keys of a join may prune the scan; null where any may, or was not asked. */
  Set<String> keyColumns() {
    return keys;
  }

  public boolean isSpark() {
    return files != null;
  }

  /** Whether the scan decodes so little that one task does it faster than a shuffle would start. */
  public boolean isSmall() {
    return statistics.numRows().orElse(Long.MAX_VALUE) <= FEW_VALUES / Math.max(1, width)
        && statistics.sizeInBytes().orElse(Long.MAX_VALUE) <= FEW_BYTES;
  }

  /** The dataset's folder, as Hadoop names it. */
  public String root() {
    return (String) files.get(Vocabulary.Files.ROOT);
  }

  /** Where a file is, as Hadoop names it; a clone's may be in the folder of another dataset. */
  public String file(String path) {
    for (Map.Entry<?, ?> one : ((Map<?, ?>) files.get(Vocabulary.Files.ORIGINS)).entrySet()) {
      String prefix = (String) one.getKey();
      if (path.startsWith(prefix)) {
        return "file:" + one.getValue() + "/" + path.substring(prefix.length());
      }
    }
    return root() + "/" + path;
  }

  /** Whether the files are as Python found them when it planned: no link, and of the same size. */
  boolean areFilesThere() {
    if (files == null) {
      return true; // Python looks at each file when it reads it
    }
    Set<Path> folders = new HashSet<>();
    try {
      for (int i = 0; i < list(Vocabulary.Files.PATHS).size(); i++) {
        long size = ((Number) list(Vocabulary.Files.SIZES).get(i)).longValue();
        if (size != sizeOf((String) list(Vocabulary.Files.PATHS).get(i), folders)) {
          return false;
        }
        var deleted = (List<?>) list(Vocabulary.Files.DELETED).get(i);
        if (deleted != null && deleted.get(5) == null) { // the vector has no copy here
          long end = ((Number) deleted.get(3)).longValue() + ((Number) deleted.get(4)).longValue();
          if (end > sizeOf((String) deleted.get(2), folders)) {
            return false;
          }
        }
      }
      return true;
    } catch (IOException | InvalidPathException e) {
      return false;
    }
  }

  /** The size of a file; -1 for a link, or a file outside. Folders are looked at once. */
  private long sizeOf(String file, Set<Path> folders) throws IOException {
    Path path = Path.of(file(file).substring("file:".length()));
    var found = Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    boolean isOwn = !folders.add(path.getParent()) || isInside(path.getParent());
    return found.isRegularFile() && isOwn ? found.size() : -1;
  }

  /** Whether a folder is in that of the dataset, or of one that it was cloned from. */
  private boolean isInside(Path folder) throws IOException {
    Path real = folder.toRealPath();
    if (real.startsWith(Path.of(root().substring("file:".length())).toRealPath())) {
      return true;
    }
    for (Object origin : ((Map<?, ?>) files.get(Vocabulary.Files.ORIGINS)).values()) {
      if (real.startsWith(Path.of((String) origin).toRealPath())) {
        return true;
      }
    }
    return false;
  }

  /** The columns that tell where a row is stored, with plake's names for them. */
  public Map<?, ?> places() {
    return (Map<?, ?>) files.get(Vocabulary.Files.PLACES);
  }

  /** One of the lists in {@link Vocabulary.Files}. */
  public List<?> list(String key) {
    return (List<?>) files.get(key);
  }

  /**
   * How many rows a scan gives, at most, and its size. By this Spark decides which side of a join
   * to broadcast.
   *
   * <p>The size is what Spark's own Parquet relation tells: bytes in files, with the part of the
   * widths that the columns of the scan have. Only row groups count that are left after pruning.
   */
  static final class ScanStatistics implements Statistics {
    private static final long OVERHEAD = 8; // bytes per row, as in Spark's own estimates

    private final long rows;
    private final long bytes;

    private ScanStatistics(long rows, long bytes) {
      this.rows = rows;
      this.bytes = Math.max(1, bytes);
    }

    /** Of rows that are in memory. */
    static ScanStatistics ofRows(long rows, StructType columns) {
      return new ScanStatistics(rows, rows * width(columns));
    }

    /**
     * @param bytes those of the row groups that are read
     * @param columns those of the scan
     * @param full all columns of the table
     */
    static ScanStatistics of(long rows, long bytes, StructType columns, StructType full) {
      double share = (double) width(columns) / width(full);
      double size = bytes * share * SQLConf.get().fileCompressionFactor();
      return new ScanStatistics(rows, (long) size);
    }

    private static long width(StructType columns) {
      return OVERHEAD + columns.defaultSize();
    }

    @Override
    public OptionalLong sizeInBytes() {
      return OptionalLong.of(bytes);
    }

    @Override
    public OptionalLong numRows() {
      return OptionalLong.of(rows);
    }
  }
}
