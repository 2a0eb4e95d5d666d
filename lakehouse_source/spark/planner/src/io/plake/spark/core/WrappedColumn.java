package io.plake.spark.core;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column over one of Spark's, which owns the memory and frees it. Executors load this class. */
public abstract class WrappedColumn extends ColumnVector {
  protected final ColumnVector column;

  protected WrappedColumn(ColumnVector column, DataType type) {
    super(type);
    this.column = column;
  }

  /** The place of a row in Spark's column. */
  protected int at(int row) {
    return row;
  }

  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

  @Override
  public boolean hasNull() {
    return column.hasNull();
  }

  @Override
  public int numNulls() {
    return column.numNulls();
  }

  @Override
  public boolean isNullAt(int row) {
    return column.isNullAt(at(row));
  }

  @Override
  public boolean getBoolean(int row) {
    return column.getBoolean(at(row));
  }

  @Override
  public byte getByte(int row) {
    return column.getByte(at(row));
  }

  @Override
  public short getShort(int row) {
    return column.getShort(at(row));
  }

  @Override
  public int getInt(int row) {
    return column.getInt(at(row));
  }

  @Override
  public long getLong(int row) {
    return column.getLong(at(row));
  }

  @Override
  public float getFloat(int row) {
    return column.getFloat(at(row));
  }

  @Override
  public double getDouble(int row) {
    return column.getDouble(at(row));
  }

  @Override
  public ColumnarArray getArray(int row) {
    return column.getArray(at(row));
  }

  @Override
  public ColumnarMap getMap(int row) {
    return column.getMap(at(row));
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(at(row), precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(at(row));
  }

  @Override
  public byte[] getBinary(int row) {
    return column.getBinary(at(row));
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    return column.getChild(ordinal);
  }
}
