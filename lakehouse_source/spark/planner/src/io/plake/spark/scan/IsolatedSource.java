package io.plake.spark.scan;

import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Relations;
import io.plake.spark.scan.ReaderResponse.ScanStatistics;
import java.util.Set;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Seq;

/**
 * The data source of one scan: its own read plan over the Python instance of its frame.
 *
 * <p>It uses the Python instance of the frame, which pins the version that all scans of the frame
 * read. The plan is made when the first of these is asked for: the size of the scan, columns of
 * which keys are useful, who should read it, partitions.
 */
public final class IsolatedSource extends PythonDataSourceV2 {

  private static final String KEYS = "the keys of a join may prune";

  private final PythonDataSourceV2 frame;
  final StructType full;
  private final CaseInsensitiveStringMap options;
  final Pushdown pushdown;
  private final String reader;
  private ReaderResponse response;
  private boolean hasKeys;
  private boolean isChosen;
  private volatile boolean keptForKeys;
  private IsolatedSource longs;
  private PythonDataSourceReadInfo planned;
  private KnownPlans.Key known;
  private boolean isRemembered;

  IsolatedSource(
      PythonDataSourceV2 frame, StructType full, CaseInsensitiveStringMap options,
      Pushdown pushdown) {
    this(frame, full, options, pushdown, null);
  }

  /** @param reader one of {@code Vocabulary.Reader}; null where Python reads in any case */
  IsolatedSource(
      PythonDataSourceV2 frame, StructType full, CaseInsensitiveStringMap options,
      Pushdown pushdown, String reader) {
    this.frame = frame;
    this.full = full;
    this.options = options;
    this.pushdown = pushdown;
    this.reader = reader;
  }

  /** The same scan with more conditions, which only planning uses. */
  IsolatedSource withJoinKeys(Metadata[] terms) {
    return new IsolatedSource(frame, full, options, pushdown.withJoinKeys(terms));
  }

  /** The same scan with longs for the decimals that a long can hold; null where there are none. */
  synchronized IsolatedSource withLongs() {
    if (longs == null) {
      Pushdown pushed = pushdown.withLongs();
      longs = pushed == null ? this : new IsolatedSource(frame, full, options, pushed, reader);
    }
    return longs == this ? null : longs;
  }

  /** The scan as it is planned: with longs for decimals, where there are any. */
  private IsolatedSource asPlanned() {
    IsolatedSource other = withLongs();
    return other == null ? this : other;
  }

  /**
   * Asks plake who should read the scan. If it is Python, its tasks come with the answer, and the
   * scan is not planned again.
   *
   * @return null where it is Python without asking
   */
  ReaderResponse planned() {
    return reader == null ? null : asPlanned().responseFor(false);
  }

  /**
   * Makes a physical plan of the scan. From 4.3 on Spark asks once more then by which columns keys
   * may come, of scans too that no join is about.
   */
  public void choose() {
    asPlanned().markChosen();
  }

  private synchronized void markChosen() {
    isChosen = true;
  }

  /**
   * The columns of which keys of a join are likely to leave out much of the scan, if they come
   * while the query runs; null where any may be, or where it is too late for a join to ask.
   */
  Set<String> keyColumns() {
    return asPlanned().keyColumnsInTime();
  }

  private synchronized Set<String> keyColumnsInTime() {
    return isChosen && !hasKeys ? null : responseFor(true).keyColumns();
  }

  private synchronized ReaderResponse responseFor(boolean joined) {
    if (response == null || joined && !hasKeys) {
      IsolatedSource asking =
          new IsolatedSource(frame, full, options, pushdown.withRequest(reader, joined));
      PythonDataSourceReadInfo info = asking.readInfo();
      ReaderResponse found = ReaderResponse.of(info.partitions(), pushdown.columns, full);
      if (asking.isRemembered && !found.areFilesThere()) { // Python tells what is wrong
        info = asking.askedAgain();
        found = ReaderResponse.of(info.partitions(), pushdown.columns, full);
      }
      response = found;
      hasKeys = joined;
      planned = response.isSpark() ? null : info;
    }
    return response;
  }

  /** How much of the table the scan reads. It is planned already. */
  synchronized ScanCounts counts() {
    return response != null
        ? response.counts : ReaderResponse.of(partitions(), pushdown.columns, full).counts;
  }

  /** Lets Python read the scan, because keys of a join may prune it. */
  public void keepForKeys() {
    asPlanned().keptForKeys = true;
  }

  /** Why Python reads the scan, where plake was asked; otherwise null. */
  synchronized String note() {
    return keptForKeys ? KEYS : response == null || response.isSpark() ? null : response.note;
  }

  /** Spark's own scan of this source. */
  Scan scan() {
    return new PythonScanBuilder(this, Relations.SOURCE, pushdown.marked(), options).build();
  }

  /** The partitions, pickled. A Python worker makes them. */
  Seq<byte[]> partitions() {
    return readInfo().partitions();
  }

  private PythonDataSourceReadInfo readInfo() {
    return getOrCreateReadInfo(Relations.SOURCE, options, pushdown.marked(), false);
  }

  /** How large the scan is. Spark asks for every copy of the plan. */
  ScanStatistics statistics() {
    return asPlanned().responseFor(false).statistics;
  }

  @Override
  public UserDefinedPythonDataSource source() {
    return PlakeSource.withErrors(frame.source());
  }

  /** The frame's instance. A frame whose schema the user gave has none yet: it is made here. */
  @Override
  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String shortName, CaseInsensitiveStringMap options, Option<StructType> userSchema) {
    synchronized (frame) {
      return frame.getOrCreateDataSourceInPython(shortName, options, new Some<>(full));
    }
  }

  /** Several threads of Spark may ask for partitions and for the reader. */
  @Override
  public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
      String shortName, CaseInsensitiveStringMap options, StructType marked, boolean streaming) {
    if (planned == null) {
      known = streaming ? null : KnownPlans.key(
          getOrCreateDataSourceInPython(shortName, options, new Some<>(full)).dataSource(), marked);
      planned = known == null ? null : KnownPlans.get(known);
      isRemembered = planned != null;
    }
    if (planned == null) {
      planned = super.getOrCreateReadInfo(shortName, options, marked, streaming);
      if (known != null) {
        KnownPlans.put(known, planned);
      }
    }
    return planned;
  }

  /** A new plan in the place of one that was remembered. */
  private synchronized PythonDataSourceReadInfo askedAgain() {
    KnownPlans.remove(known);
    planned = null;
    return readInfo();
  }

  /** Tells whether both read the same rows and columns, so that one may stand for the other. */
  @Override
  public boolean equals(Object other) {
    return other instanceof IsolatedSource that && frame == that.frame
        && options.equals(that.options) && pushdown.equals(that.pushdown);
  }

  @Override
  public int hashCode() {
    return 31 * System.identityHashCode(frame) + pushdown.hashCode();
  }
}
