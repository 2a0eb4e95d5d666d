package io.plake.spark.reader;

import io.plake.spark.core.WrappedColumn;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;

/**
 * Identities of rows, or the versions that last changed them, which are never NULL.
 *
 * <p>A file stores them for rows that came from other files. For all others the identity is that of
 * the file's first row plus the position, and the version is the one that added the file. The same
 * rule is in {@code lakehouse_source/parquet/open_file.py}.
 */
final class MovedRows extends WrappedColumn {
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
