package io.plake.spark.reader;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.AggregateResponse;
import io.plake.spark.scan.IsolatedSource;
import io.plake.spark.scan.ReaderResponse;
import io.plake.spark.scan.ScanCounts;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * The files of one scan, for Spark's own Parquet reader. The catalog knows them, with their sizes
 * and the values of columns that they lack: no folder is listed and no path is parsed.
 *
 * <p>Lives on the driver only. Executors need classes of this jar for files with deleted rows or
 * changed columns: see {@link PlakeParquet}.
 */
public final class PlakeFiles implements FileIndex {

  private final IsolatedSource source;
  private final StructType partitioned;
  private final Path root;
  private final List<FileStatus> files = new ArrayList<>();
  private final List<InternalRow> values = new ArrayList<>();
  private final List<Integer> valuesOf = new ArrayList<>();
  private final List<Map<String, Object>> known = new ArrayList<>();
  private final long bytes;
  private final ScanCounts counts;
  private final boolean isSmall;
  private final List<java.util.Map<String, SQLMetric>> metrics = new CopyOnWriteArrayList<>();

  /**
   * @param source the scan: equal scans have equal files
   * @param partitioned the columns of {@link Vocabulary.Files#VALUES}, with Spark's types
   * @param isPlain Spark's reader can read the files as they are
   */
  PlakeFiles(
      IsolatedSource source, ReaderResponse response, StructType partitioned, boolean isPlain) {
    this.source = source;
    this.partitioned = partitioned;
    this.root = new Path(response.root());
    long total = 0;
    for (int i = 0; i < response.list(Vocabulary.Files.PATHS).size(); i++) {
      long size = ((Number) response.list(Vocabulary.Files.SIZES).get(i)).longValue();
      Path path = new Path(response.file((String) response.list(Vocabulary.Files.PATHS).get(i)));
      files.add(new FileStatus(size, false, 1, 0, 0, path));
      valuesOf.add(((Number) response.list(Vocabulary.Files.VALUES_OF).get(i)).intValue());
      total += size;
      known.add(isPlain ? Map$.MODULE$.empty() : known(response, i));
    }
    this.bytes = total;
    this.counts = response.counts;
    this.isSmall = response.isSmall();
    for (Object texts : response.list(Vocabulary.Files.VALUES)) {
      Object[] cells = new Object[partitioned.length()];
      for (int i = 0; i < cells.length; i++) {
        cells[i] = AggregateResponse.value(
            (String) ((List<?>) texts).get(i), partitioned.fields()[i].dataType());
      }
      values.add(new GenericInternalRow(cells));
    }
  }

  /** What {@link FileBatches} has to know of a file. */
  private Map<String, Object> known(ReaderResponse response, int i) {
    int layout = ((Number) response.list(Vocabulary.Files.LAYOUT_OF).get(i)).intValue();
    List<?> deleted = (List<?>) response.list(Vocabulary.Files.DELETED).get(i);
    String path = (String) response.list(Vocabulary.Files.PATHS).get(i);
    DeletedRows rows = deleted == null ? null : new DeletedRows(
        new Path(response.file((String) deleted.get(2))).toUri().getPath(), path, deleted);
    List<?> identity = response.places().isEmpty() ? null
        : (List<?>) response.list(Vocabulary.Files.IDENTITIES).get(i);
    Object known = identity == null
        ? new FileBatches.Known(layout, rows, null, null, null, null, null)
        : new FileBatches.Known(
            layout, rows, path, (String) identity.get(2), files.get(i).getLen(),
            ((Number) identity.get(0)).longValue(), ((Number) identity.get(1)).longValue());
    return new Map.Map1<>(FileBatches.KNOWN, known);
  }

  /** Whether one task reads the files faster than several tasks and a shuffle. */
  boolean isSmall() {
    return isSmall;
  }

  /** The relation of these files. {@code explain()} shows the note as the name of the scan. */
  HadoopFsRelation relation(
      StructType stored, FileFormat format, Map<String, String> options, SparkSession session,
      String note) {
    return new Relation(this, partitioned, stored, format, options, session, note);
  }

  /** New metrics for a node of a plan that reads these files. They are set when it runs. */
  java.util.Map<String, SQLMetric> metrics(SparkContext context) {
    java.util.Map<String, SQLMetric> made = counts.inPlan(context);
    metrics.add(made);
    return made;
  }

  @Override
  public Seq<Path> rootPaths() {
    return seq(List.of(root));
  }

  /** The files by the values of their partition columns. Nobody applies these filters again. */
  @Override
  public Seq<PartitionDirectory> listFiles(
      Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    metrics.forEach(counts::set);
    boolean[] wanted = new boolean[values.size()];
    List<List<FileStatusWithMetadata>> byValues = new ArrayList<>();
    for (int i = 0; i < wanted.length; i++) {
      wanted[i] = true;
      byValues.add(new ArrayList<>());
    }
    for (Expression one : asJava(partitionFilters)) {
      var filter = Predicate$.MODULE$.createInterpreted(
          one.transformUp(new Rewrite<>(node -> bound(node, partitioned))));
      filter.initialize(0);
      for (int i = 0; i < wanted.length; i++) {
        wanted[i] = wanted[i] && filter.eval(values.get(i));
      }
    }
    for (int i = 0; i < files.size(); i++) {
      int place = valuesOf.get(i);
      if (wanted[place]) {
        check(files.get(i));
        byValues.get(place).add(new FileStatusWithMetadata(files.get(i), known.get(i)));
      }
    }
    List<PartitionDirectory> found = new ArrayList<>();
    for (int i = 0; i < wanted.length; i++) {
      if (!byValues.get(i).isEmpty()) {
        found.add(new PartitionDirectory(values.get(i), seq(byValues.get(i))));
      }
    }
    return seq(found);
  }

  /** A query may run long after it was planned. */
  private static void check(FileStatus file) {
    java.nio.file.Path path = java.nio.file.Path.of(file.getPath().toUri().getPath());
    String reason;
    try {
      long size = Files.size(path);
      if (size == file.getLen()) {
        return;
      }
      reason = "it has " + size + " bytes, not " + file.getLen();
    } catch (IOException e) {
      reason = "the file is missing: deleted by hand, or vacuumed with its version";
    }
    throw new IllegalStateException("file://" + path + " cannot be read: " + reason);
  }

  private static <T> Seq<T> seq(List<T> list) {
    return asScala(list).toSeq();
  }

  @Override
  public String[] inputFiles() {
    return files.stream().map(file -> file.getPath().toUri().toString()).toArray(String[]::new);
  }

  @Override
  public void refresh() {} // a version never changes

  @Override
  public long sizeInBytes() {
    return bytes;
  }

  @Override
  public StructType partitionSchema() {
    return partitioned;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PlakeFiles that && that.source.equals(source);
  }

  @Override
  public int hashCode() {
    return source.hashCode();
  }

  /** A partition column as its place in the row of values. */
  private static Expression bound(Expression node, StructType columns) {
    if (!(node instanceof AttributeReference column)) {
      return node;
    }
    int place = columns.fieldIndex(column.name());
    return new BoundReference(place, columns.fields()[place].dataType(), true);
  }

  /** A relation of Spark that says in plans that plake made it. */
  public static final class Relation extends HadoopFsRelation {
    private static final long serialVersionUID = 1;

    private final String note;

    Relation(
        FileIndex files, StructType partitioned, StructType stored, FileFormat format,
        Map<String, String> options, SparkSession session, String note) {
      super(files, partitioned, stored, Option.empty(), format, options, session);
      this.note = note;
    }

    /** Spark's rule for paths of VARIANT gives it other columns. */
    @Override
    public HadoopFsRelation copy(
        FileIndex files, StructType partitioned, StructType stored, Option<BucketSpec> buckets,
        FileFormat format, Map<String, String> options, SparkSession session) {
      return new Relation(files, partitioned, stored, format, options, session, note);
    }

    @Override
    public String toString() {
      return Relations.SOURCE + ", read by Spark (" + note + ")";
    }
  }
}
