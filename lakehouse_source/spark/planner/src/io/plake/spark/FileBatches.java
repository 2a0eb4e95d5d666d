package io.plake.spark;

import java.io.Closeable;
import java.io.IOException;
import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
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

  /** The source of a column that has one value, the {@code number}th of a reader. */
  static int constant(int number) {
    return -1 - number;
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

  /** Reads the files of one layout. */
  static final class Reader implements Serializable {
    private static final long serialVersionUID = 1;

    @SuppressWarnings("serial")
    private final Function1<PartitionedFile, Iterator<InternalRow>> spark;

    private final int[] sources;
    private final int place;

    @SuppressWarnings("serial")
    private final Object[] values;

    @SuppressWarnings("serial")
    private final DataType[] types;

    /**
     * @param spark Spark's reader, which gives batches
     * @param sources for each column of the scan its place in these batches, or a constant
     * @param place where the batches tell the places of rows; negative where they do not
     * @param values of the constants, as Spark holds them
     * @param types of the constants
     */
    Reader(
        Function1<PartitionedFile, Iterator<InternalRow>> spark, int[] sources, int place,
        Object[] values, DataType[] types) {
      this.spark = spark;
      this.sources = sources;
      this.place = place;
      this.values = values;
      this.types = types;
    }
  }

  /** The batches of one file. Each is valid until the next is asked for, as those of Spark are. */
  private static final class Batches extends AbstractIterator<ColumnarBatch> implements Closeable {
    private final Iterator<?> spark;
    private final Reader reader;
    private final long[] deleted;
    private ColumnarBatch read;
    private ColumnarBatch all;
    private ColumnarBatch some;
    private Selection live;

    Batches(Reader reader, PartitionedFile file, DeletedRows rows) {
      this.reader = reader;
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
      InternalRow row = new GenericInternalRow(reader.values);
      ColumnVector[] columns = new ColumnVector[reader.sources.length];
      for (int i = 0; i < columns.length; i++) {
        int source = reader.sources[i];
        if (source >= 0) {
          columns[i] = read.column(source);
        } else {
          int number = constant(source); // its own inverse
          // It has as many rows as anybody asks for.
          ConstantColumnVector column =
              new ConstantColumnVector(Integer.MAX_VALUE, reader.types[number]);
          ColumnVectorUtils.populate(column, row, number);
          columns[i] = column;
        }
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
  private static final class LiveRows extends ColumnVector {
    private final ColumnVector all;
    private final Selection live;
    private final int[] rows;
    private final ColumnVector[] fields;

    LiveRows(ColumnVector all, Selection live) {
      super(all.dataType());
      this.all = all;
      this.live = live;
      this.rows = live.rows;
      this.fields = new ColumnVector[
          all.dataType() instanceof StructType ? ((StructType) all.dataType()).length() : 0];
    }

    /** The memory is that of Spark's reader. */
    @Override
    public void close() {}

    @Override
    public void closeIfFreeable() {}

    @Override
    public boolean hasNull() {
      return all.hasNull();
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
    public boolean isNullAt(int row) {
      return all.isNullAt(rows[row]);
    }

    @Override
    public boolean getBoolean(int row) {
      return all.getBoolean(rows[row]);
    }

    @Override
    public byte getByte(int row) {
      return all.getByte(rows[row]);
    }

    @Override
    public short getShort(int row) {
      return all.getShort(rows[row]);
    }

    @Override
    public int getInt(int row) {
      return all.getInt(rows[row]);
    }

    @Override
    public long getLong(int row) {
      return all.getLong(rows[row]);
    }

    @Override
    public float getFloat(int row) {
      return all.getFloat(rows[row]);
    }

    @Override
    public double getDouble(int row) {
      return all.getDouble(rows[row]);
    }

    @Override
    public ColumnarArray getArray(int row) {
      return all.getArray(rows[row]);
    }

    @Override
    public ColumnarMap getMap(int row) {
      return all.getMap(rows[row]);
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
      return all.getDecimal(rows[row], precision, scale);
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return all.getUTF8String(rows[row]);
    }

    @Override
    public byte[] getBinary(int row) {
      return all.getBinary(rows[row]);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      if (fields[ordinal] == null) {
        fields[ordinal] = new LiveRows(all.getChild(ordinal), live);
      }
      return fields[ordinal];
    }
  }
}
