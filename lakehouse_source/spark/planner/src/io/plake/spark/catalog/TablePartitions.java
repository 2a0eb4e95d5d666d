package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.plake.spark.core.Refusal;
import io.plake.spark.scan.AggregateResponse;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.types.StructField;

/** What {@code SHOW PARTITIONS} asks of a table. Partitions follow from rows: none is made by itself. */
interface TablePartitions extends SupportsPartitionManagement {

  /** The values of the partition columns, as texts, from plake's catalog. */
  JsonNode partitionRows();

  @Override
  default InternalRow[] listPartitionIdentifiers(String[] names, InternalRow wanted) {
    StructField[] columns = partitionSchema().fields();
    List<InternalRow> found = new ArrayList<>();
    for (JsonNode row : partitionRows()) {
      Object[] cells = new Object[columns.length];
      boolean fits = true;
      for (int i = 0; i < columns.length; i++) {
        JsonNode text = row.get(i);
        cells[i] = AggregateResponse.value(
            text.isNull() ? null : text.asText(), columns[i].dataType());
        int place = Arrays.asList(names).indexOf(columns[i].name());
        fits &= place < 0
            || Objects.equals(cells[i], wanted.get(place, columns[i].dataType()));
      }
      if (fits) {
        found.add(new GenericInternalRow(cells));
      }
    }
    return found.toArray(new InternalRow[0]);
  }

  @Override
  default void createPartition(InternalRow partition, Map<String, String> properties) {
    throw Refusal.because("A table of plake has the partitions of its rows: INSERT rows to add one.");
  }

  @Override
  default boolean dropPartition(InternalRow partition) {
    throw Refusal.because("A table of plake has the partitions of its rows: DELETE the rows to drop"
        + " one.");
  }

  @Override
  default void replacePartitionMetadata(InternalRow partition, Map<String, String> properties) {
    throw Refusal.because("A partition of plake has no properties.");
  }

  @Override
  default Map<String, String> loadPartitionMetadata(InternalRow partition) {
    return Map.of();
  }
}
