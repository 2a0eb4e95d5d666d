package io.plake.spark.scan;

import io.plake.spark.core.Feature;
import io.plake.spark.core.Refusal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

/**
 * Spark's own scan of a Python source, with what it pushes down.
 *
 * <p>Adds seven things: a schema without plake's marks (they would appear in the metadata of the
 * query's columns); equality (Spark computes an exchange over equal scans once); an
 * {@code explain()} that shows filters and columns; its size, by which Spark plans joins;
 * pruning by the keys of a join, which Spark learns while the query runs; metrics; batches that are
 * not copied row by row.
 */
public final class IsolatedScan
    implements Scan, SupportsMetadata, SupportsRuntimeV2Filtering, SupportsReportStatistics {

  private static final Statistics UNKNOWN = new Statistics() {
    @Override
    public OptionalLong sizeInBytes() {
      return OptionalLong.empty();
    }

    @Override
    public OptionalLong numRows() {
      return OptionalLong.empty();
    }
  };

  private static final String PYTHON = "Python, ";

  private final IsolatedSource source;
  private final Scan stock;
  private final boolean inBatches;
  private final ThreadLocal<IsolatedSource> narrowed = new ThreadLocal<>();
  private final ThreadLocal<IsolatedSource> run = new ThreadLocal<>();
  private volatile Batch planned;

  IsolatedScan(IsolatedSource source) {
    this(source, comesInBatches());
  }

  private IsolatedScan(IsolatedSource source, boolean inBatches) {
    this.source = source;
    this.stock = source.scan();
    this.inBatches = inBatches && !hasNumbersToTake(stock.readSchema());
  }

  /**
   * Whether a type has an array or a map of numbers that may be NULL.
   *
   * <p>From 4.3 on, Spark's compiled code for functions such as {@code transform} takes an element
   * before it asks whether that is NULL. Arrow's vectors of fixed width refuse that; rows do not.
   */
  private static boolean hasNumbersToTake(DataType type) {
    return type.existsRecursively(part ->
        part instanceof ArrayType array && array.containsNull()
            && CodeGenerator.isPrimitiveType(array.elementType())
        || part instanceof MapType map && map.valueContainsNull()
            && CodeGenerator.isPrimitiveType(map.valueType()));
  }

  private static boolean comesInBatches() {
    try {
      return BatchReads.arePossible();
    } catch (LinkageError | ReflectiveOperationException e) {
      Feature.BATCHES.failed(e);
      return false;
    }
  }

  public IsolatedSource source() {
    return source;
  }

  /** Who should read the scan; null where it is Python, without asking or after a failure. */
  public ReaderResponse response() {
    try {
      return source.planned();
    } catch (Exception e) { // the same failure shows when the scan runs
      return null;
    }
  }

  /** The same scan with longs for decimals; null where it has none, or longs already. */
  IsolatedScan withLongs() {
    IsolatedSource longs = source.withLongs();
    return longs == null ? null : new IsolatedScan(longs, inBatches);
  }

  @Override
  public StructType readSchema() {
    return source.pushdown.columns;
  }

  /** The batch of this scan or, right after {@link #filter}, a narrower one, once. */
  @Override
  public Batch toBatch() {
    IsolatedSource keys = narrowed.get();
    narrowed.remove();
    return new IsolatedBatch(keys == null ? stock.toBatch() : keys.scan().toBatch(), keys);
  }

  /** Spark asks where relations are joined. The scan is then planned here, once for the run. */
  @Override
  public Statistics estimateStatistics() {
    try {
      return source.statistics();
    } catch (Exception | LinkageError e) { // the same failure shows when the scan runs
      return UNKNOWN;
    }
  }

  /**
   * Spark asks where relations are joined. The scan is then planned here: keys of other columns
   * would cost time and leave nothing out.
   */
  @Override
  public NamedReference[] filterAttributes() {
    List<NamedReference> found = new ArrayList<>();
    try {
      var likely = source.keyColumns();
      for (var field : source.pushdown.columns.fields()) {
        if (ConditionData.hasText(field.dataType())
            && (likely == null || likely.contains(field.name()))) {
          found.add(Expressions.column(Refusal.quoted(field.name())));
        }
      }
    } catch (Exception | LinkageError e) { // the same failure shows when the scan runs
      found.clear();
    }
    return found.toArray(new NamedReference[0]);
  }

  /**
   * Spark calls this with the keys of a broadcast, and then {@link #toBatch} for partitions.
   *
   * <p>Other nodes of the plan may hold this same scan: the keys are used for one batch only.
   */
  @Override
  public void filter(Predicate[] offered) {
    try {
      ConditionData keys = new ConditionData(source.full, offered);
      if (keys.terms().length > 0) {
        narrowed.set(source.withJoinKeys(keys.terms()));
      }
    } catch (LinkageError | RuntimeException e) {
      Feature.JOIN_KEYS.failed(e);
    }
  }

  /** Follows the name of the table in Spark's plans. */
  @Override
  public String description() {
    return stock.description() + ", PushedFilters: " + source.pushdown.condition().texts()
        + ", ReadSchema: " + source.pushdown.columns.simpleString() + source.pushdown.limit()
        + reader();
  }

  @Override
  public Map<String, String> getMetaData() {
    String columns = source.pushdown.columns.simpleString();
    String note = source.note();
    return note == null
        ? new Map.Map2<>("PushedFilters", source.pushdown.condition().texts(), "ReadSchema", columns)
        : new Map.Map3<>(
            "PushedFilters", source.pushdown.condition().texts(), "ReadSchema", columns, "Reader", PYTHON + note);
  }

  private String reader() {
    String note = source.note();
    return note == null ? "" : ", Reader: " + PYTHON + note;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    List<CustomMetric> all = new ArrayList<>(Arrays.asList(stock.supportedCustomMetrics()));
    all.addAll(ScanCounts.METRICS);
    return all.toArray(new CustomMetric[0]);
  }

  /** Spark asks right after the partitions, in the same thread. */
  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    List<CustomTaskMetric> all = new ArrayList<>(Arrays.asList(stock.reportDriverMetrics()));
    try {
      ScanCounts counts = source.counts();
      IsolatedSource keys = run.get();
      all.addAll((keys == null ? counts : counts.prunedByKeys(keys.counts())).reported());
    } catch (Exception | LinkageError e) {
      Feature.METRICS.failed(e);
    }
    run.remove();
    return all.toArray(new CustomTaskMetric[0]);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return inBatches ? ColumnarSupportMode.SUPPORTED : stock.columnarSupportMode();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof IsolatedScan that && that.source.equals(source);
  }

  @Override
  public int hashCode() {
    return source.hashCode();
  }

  /** Spark compares physical scans by their batches. */
  private final class IsolatedBatch implements Batch {
    private final Batch stock;
    private final IsolatedSource keys;

    IsolatedBatch(Batch stock, IsolatedSource keys) {
      this.stock = stock;
      this.keys = keys;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      InputPartition[] partitions = stock.planInputPartitions();
      planned = stock;
      if (keys == null) {
        run.remove();
      } else {
        run.set(keys);
      }
      return partitions;
    }

    /** Uses the plan that was made already: readers of all plans of a scan are alike. */
    @Override
    public PartitionReaderFactory createReaderFactory() {
      Batch any = planned;
      PartitionReaderFactory rows = (any == null ? stock : any).createReaderFactory();
      return inBatches ? new BatchReads(rows) : rows;
    }

    private IsolatedSource source() {
      return source;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof IsolatedBatch that && that.source().equals(source);
    }

    @Override
    public int hashCode() {
      return source.hashCode();
    }
  }
}
