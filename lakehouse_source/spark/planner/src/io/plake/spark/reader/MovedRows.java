package io.plake.spark.reader;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Identities of rows, or the versions that last changed them, which are never NULL.
 *
 * <p>A file stores them for rows that came from other files. For all others the identity is that of
 * the file's first row plus the position, and the version is the one that added the file. The same
 * rule is in {@code lakehouse_source/parquet/stored_columns.py}.
 */
final class MovedRows extends ColumnVector {

  private final ColumnVector stored;
  private final long first;
  private final ColumnVector places;

  /**
   * @param stored the values in the file, NULL for rows that were not moved
   * @param first the value for these; with {@code places} that of the file's first row
   * @param places positions in the file, which are added to it; null: nothing is added
   */
  MovedRows(ColumnVector stored, long first, ColumnVector places) {
    super(DataTypes.LongType);
    this.stored = stored;
    this.first = first;
    this.places = places;
  }

  @Override
  public long getLong(int row) {
    return !stored.isNullAt(row) ? stored.getLong(row)
        : places == null ? first : first + places.getLong(row);
  }

  /** The memory is that of Spark's reader. */
  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

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

  @Override
  public boolean getBoolean(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public byte getByte(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public short getShort(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public int getInt(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public float getFloat(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public double getDouble(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw new UnsupportedOperationException();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public byte[] getBinary(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw new UnsupportedOperationException();
  }
}
