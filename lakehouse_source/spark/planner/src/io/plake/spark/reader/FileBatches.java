package io.plake.spark.reader;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.WrappedColumn;
import java.io.Closeable;
import java.io.IOException;
import java.io.Serializable;
import java.util.function.Function;
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
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/**
 * What tasks call with a file, or a part of one: gives batches, or rows, with the columns of the
 * scan and without deleted rows. {@link PlakeParquet} makes it.
 */
final class FileBatches extends AbstractFunction1<PartitionedFile, Iterator<InternalRow>>
    implements Serializable {
  private static final long serialVersionUID = 1;

  /** The key of {@link Known} among what Spark carries along with a file. */
  static final String KNOWN = "plake";

  /**
   * What is known of a file.
   *
   * @param layout its number
   * @param deleted the deleted rows; null: there are none
   * @param path as plake names it; this and the rest is null where no column tells places of rows
   * @param firstRow the identity of the file's first row
   * @param version the one that added the file
   */
  record Known(
      int layout, DeletedRows deleted, String path, String uri, Long size, Long firstRow,
      Long version) implements Serializable {}

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
    Known known = (Known) file.otherConstantMetadataColumnValues().apply(KNOWN);
    Reader reader = readers[2 * known.layout + (known.deleted == null ? 0 : 1)];
    Batches batches = new Batches(reader, file, known);
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
    ColumnVector column(ColumnarBatch read, ColumnVector places, Known file);
  }

  /** A column that Spark's reader gives. */
  static Source stored(int number) {
    return (read, places, file) -> read.column(number);
  }

  /** A column with one value in all rows, as Spark holds it. */
  static Source constant(DataType type, Object value) {
    return (read, places, file) -> vector(type, value);
  }

  /** A text, or a whole number, that is known of the file. */
  static Source ofFile(Told told) {
    return (read, places, file) -> told.apply(file) instanceof String text
        ? vector(DataTypes.StringType, UTF8String.fromString(text))
        : vector(DataTypes.LongType, told.apply(file));
  }

  /** One of the values of {@link Known}. */
  interface Told extends Function<Known, Object>, Serializable {}

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
        read.column(number), isIdentity ? file.firstRow : file.version,
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
    private final Known file;
    private final long[] deleted;
    private ColumnarBatch read;
    private ColumnarBatch all;
    private ColumnarBatch some;
    private Selection live;

    Batches(Reader reader, PartitionedFile file, Known known) {
      this.reader = reader;
      this.file = known;
      this.deleted = known.deleted == null ? null : known.deleted.bits();
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
      if (spark instanceof Closeable open) {
        open.close();
      }
    }
  }

  /** The rows of batches, where Spark's plan takes no batches. */
  private static final class Rows extends AbstractIterator<InternalRow> implements Closeable {
    private final Batches batches;
    private Iterator<InternalRow> rows = asScala(
        java.util.Collections.<InternalRow>emptyIterator());

    Rows(Batches batches) {
      this.batches = batches;
    }

    @Override
    public boolean hasNext() {
      while (!rows.hasNext() && batches.hasNext()) {
        rows = asScala(batches.next().rowIterator());
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

  /**
   * Identities of rows, or the versions that last changed them, which are never NULL.
   *
   * <p>A file stores them for rows that came from other files. For all others the identity is that
   * of the file's first row plus the position, and the version is the one that added the file. The
   * same rule is in {@code lakehouse_source/parquet/open_file.py}.
   */
  static final class MovedRows extends WrappedColumn {
    private final long first;
    private final ColumnVector places;

    /**
     * @param stored the values in the file, NULL for rows that were not moved
     * @param first the value for these; with {@code places} that of the file's first row
     * @param places positions in the file, which are added to it; null: nothing is added
     */
    MovedRows(ColumnVector stored, long first, ColumnVector places) {
      super(stored, DataTypes.LongType);
      this.first = first;
      this.places = places;
    }

    @Override
    public long getLong(int row) {
      return !column.isNullAt(row) ? column.getLong(row)
          : places == null ? first : first + places.getLong(row);
    }

    @Override
    public boolean hasNull() {
      return false;
    }

    @Override
    public int numNulls() {
      return 0;
    }

    @Override
    public boolean isNullAt(int row) {
      return false;
    }
  }
}
