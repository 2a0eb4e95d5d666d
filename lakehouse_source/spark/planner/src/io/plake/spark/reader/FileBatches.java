package io.plake.spark.reader;

import io.plake.spark.core.WrappedColumn;
import java.io.Closeable;
import java.io.IOException;
import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * What tasks call with a file, or a part of one: gives batches, or rows, with the columns of the
 * scan and without deleted rows. {@link PlakeParquet} makes it.
 */
final class FileBatches extends AbstractFunction1<PartitionedFile, Iterator<InternalRow>>
    implements Serializable {
  private static final long serialVersionUID = 1;

  /** Keys of what Spark carries along with a file: the number of its layout. */
  static final String LAYOUT = "plake_layout";

  /** The deleted rows, where there are some. */
  static final String DELETED = "plake_deleted";

  /** Where columns tell the places of rows: the file's path, as plake names it. */
  static final String PATH = "plake_path";

  /** The file's URI, and its size in bytes. */
  static final String URI = "plake_uri";
  static final String SIZE = "plake_size";

  /** The identity of the file's first row. */
  static final String FIRST_ROW = "plake_first_row";

  /** The version that added the file. */
  static final String VERSION = "plake_version";

  private final Reader[] readers;
  private final boolean inBatches;

  /**
   * @param readers for each layout one for files without deleted rows, and one for files with
   * @param inBatches Spark wants batches, and not rows
   */
  FileBatches(Reader[] readers, boolean inBatches) {
    this.readers = readers;
    this.inBatches = inBatches;
  }

  @Override
  @SuppressWarnings("unchecked")
  public Iterator<InternalRow> apply(PartitionedFile file) {
    Map<String, Object> known = file.otherConstantMetadataColumnValues();
    Option<Object> deleted = known.get(DELETED);
    DeletedRows rows = deleted.isDefined() ? (DeletedRows) deleted.get() : null;
    Reader reader = readers[2 * (Integer) known.apply(LAYOUT) + (rows == null ? 0 : 1)];
    Batches batches = new Batches(reader, file, rows);
    // Spark's readers of batches have this type too.
    return (Iterator<InternalRow>) (Iterator<?>) (inBatches ? batches : new Rows(batches));
  }

  /**
   * Reads the files of one layout.
   *
   * @param spark Spark's reader, which gives batches
   * @param sources where each column of the scan comes from
   * @param place where the batches tell the places of rows; negative where they do not
   */
  record Reader(
      Function1<PartitionedFile, Iterator<InternalRow>> spark, Source[] sources, int place)
      implements Serializable {}

  /** Where a column of the scan comes from. */
  interface Source extends Serializable {
    /**
     * @param read a batch of Spark's reader
     * @param places the places of the batch's rows in the file; null where nobody asks for them
     * @param file what is known of the file
     */
    ColumnVector column(ColumnarBatch read, ColumnVector places, Map<String, Object> file);
  }

  /** A column that Spark's reader gives. */
  static Source stored(int number) {
    return (read, places, file) -> read.column(number);
  }

  /** A column with one value in all rows, as Spark holds it. */
  static Source constant(DataType type, Object value) {
    return (read, places, file) -> vector(type, value);
  }

  /** What is known of the file under a key: a text, or a whole number. */
  static Source ofFile(String key) {
    return (read, places, file) -> file.apply(key) instanceof String text
        ? vector(DataTypes.StringType, UTF8String.fromString(text))
        : vector(DataTypes.LongType, file.apply(key));
  }

  /** The position of the row in the file. */
  static Source position() {
    return (read, places, file) -> places;
  }

  /**
   * The identity of a row, or the version that last changed it: see {@link MovedRows}.
   *
   * @param number of the hidden column in Spark's batches, which is NULL where files lack it
   */
  static Source moved(int number, boolean isIdentity) {
    return (read, places, file) -> new MovedRows(
        read.column(number), (Long) file.apply(isIdentity ? FIRST_ROW : VERSION),
        isIdentity ? places : null);
  }

  /** It has as many rows as anybody asks for. */
  private static ColumnVector vector(DataType type, Object value) {
    ConstantColumnVector column = new ConstantColumnVector(Integer.MAX_VALUE, type);
    ColumnVectorUtils.populate(column, new GenericInternalRow(new Object[] {value}), 0);
    return column;
  }

  /** The batches of one file. Each is valid until the next is asked for, as those of Spark are. */
  private static final class Batches extends AbstractIterator<ColumnarBatch> implements Closeable {
    private final Iterator<?> spark;
    private final Reader reader;
    private final Map<String, Object> file;
    private final long[] deleted;
    private ColumnarBatch read;
    private ColumnarBatch all;
    private ColumnarBatch some;
    private Selection live;

    Batches(Reader reader, PartitionedFile file, DeletedRows rows) {
      this.reader = reader;
      this.file = file.otherConstantMetadataColumnValues();
      this.deleted = rows == null ? null : rows.bits();
      this.spark = reader.spark.apply(file);
    }

    @Override
    public boolean hasNext() {
      return spark.hasNext();
    }

    @Override
    public ColumnarBatch next() {
      ColumnarBatch batch = (ColumnarBatch) spark.next();
      if (batch != read) {
        read = batch;
        all = null;
        some = null;
      }
      int count = batch.numRows();
      if (deleted != null) {
        if (live == null || live.rows.length < count) {
          live = new Selection(count);
          some = null;
        }
        live.select(batch.column(reader.place), count, deleted);
        if (live.count < count) {
          return selected();
        }
      }
      if (all == null) {
        all = new ColumnarBatch(columns());
      }
      all.setNumRows(count);
      return all;
    }

    private ColumnarBatch selected() {
      if (some == null) {
        ColumnVector[] columns = columns();
        for (int i = 0; i < columns.length; i++) {
          columns[i] = columns[i] instanceof ConstantColumnVector
              ? columns[i] : new LiveRows(columns[i], live);
        }
        some = new ColumnarBatch(columns);
      }
      some.setNumRows(live.count);
      return some;
    }

    private ColumnVector[] columns() {
      ColumnVector places = reader.place < 0 ? null : read.column(reader.place);
      ColumnVector[] columns = new ColumnVector[reader.sources.length];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = reader.sources[i].column(read, places, file);
      }
      return columns;
    }

    @Override
    public void close() throws IOException {
      if (spark instanceof Closeable) {
        ((Closeable) spark).close();
      }
    }
  }

  /** The rows of batches, where Spark's plan takes no batches. */
  private static final class Rows extends AbstractIterator<InternalRow> implements Closeable {
    private final Batches batches;
    private Iterator<InternalRow> rows = CollectionConverters.asScala(
        java.util.Collections.<InternalRow>emptyIterator());

    Rows(Batches batches) {
      this.batches = batches;
    }

    @Override
    public boolean hasNext() {
      while (!rows.hasNext() && batches.hasNext()) {
        rows = CollectionConverters.asScala(batches.next().rowIterator());
      }
      return rows.hasNext();
    }

    @Override
    public InternalRow next() {
      return hasNext() ? rows.next() : batches.next().getRow(0); // which fails: there is none
    }

    @Override
    public void close() throws IOException {
      batches.close();
    }
  }

  /** The rows of a batch that are not deleted. */
  private static final class Selection {
    private final int[] rows;
    private int count;

    Selection(int most) {
      rows = new int[most];
    }

    /** @param places those of the batch's rows in the file */
    void select(ColumnVector places, int total, long[] deleted) {
      int found = 0;
      for (int i = 0; i < total; i++) {
        rows[found] = i;
        found += DeletedRows.contains(deleted, places.getLong(i)) ? 0 : 1;
      }
      count = found;
    }
  }

  /** A column, or a field of one, without the deleted rows of the batch. */
  private static final class LiveRows extends WrappedColumn {
    private final Selection live;
    private final int[] rows;
    private final ColumnVector[] fields;

    LiveRows(ColumnVector all, Selection live) {
      super(all, all.dataType());
      this.live = live;
      this.rows = live.rows;
      this.fields = new ColumnVector[parts(all.dataType())];
    }

    /** How many children a column of a type has, besides those of lists and maps. */
    private static int parts(DataType type) {
      // Spark has a VARIANT as its value and its metadata.
      return type instanceof StructType struct ? struct.length()
          : type instanceof VariantType ? 2 : 0;
    }

    @Override
    protected int at(int row) {
      return rows[row];
    }

    @Override
    public int numNulls() {
      int found = 0;
      for (int i = 0; i < live.count; i++) {
        found += isNullAt(i) ? 1 : 0;
      }
      return found;
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      if (fields[ordinal] == null) {
        fields[ordinal] = new LiveRows(column.getChild(ordinal), live);
      }
      return fields[ordinal];
    }
  }
}
