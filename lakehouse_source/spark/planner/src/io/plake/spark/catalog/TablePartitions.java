package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.plake.spark.core.Refusal;
import io.plake.spark.scan.AggregateResponse;
import io.plake.spark.scan.ConditionData;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.filter.And;
import org.apache.spark.sql.connector.expressions.filter.Or;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/**
 * What {@code SHOW PARTITIONS} and {@code DROP PARTITION} ask of a table. Partitions follow from
 * rows: none is made by itself, and one is dropped by deleting its rows.
 */
interface TablePartitions extends SupportsAtomicPartitionManagement {

  /** The values of the partition columns, as texts, from plake's catalog. */
  JsonNode partitionRows();

  /** Deletes the rows of a condition, in one commit. */
  void delete(ConditionData rows);

  @Override
  default InternalRow[] listPartitionIdentifiers(String[] names, InternalRow wanted) {
    var columns = partitionSchema().fields();
    List<InternalRow> found = new ArrayList<>();
    for (JsonNode row : partitionRows()) {
      Object[] cells = new Object[columns.length];
      boolean fits = true;
      for (int i = 0; i < columns.length; i++) {
        JsonNode text = row.get(i);
        cells[i] = AggregateResponse.value(
            text.isNull() ? null : text.asText(), columns[i].dataType());
        int place = Arrays.asList(names).indexOf(columns[i].name());
        fits &= place < 0 || Objects.equals(cells[i], wanted.get(place, columns[i].dataType()));
      }
      if (fits) {
        found.add(new GenericInternalRow(cells));
      }
    }
    return found.toArray(new InternalRow[0]);
  }

  @Override
  default void createPartitions(InternalRow[] partitions, Map<String, String>[] properties) {
    throw Refusal.because("A table of plake has the partitions of its rows: INSERT rows to add one.");
  }

  @Override
  default boolean dropPartitions(InternalRow[] partitions) {
    delete(new ConditionData(partitionSchema(), new Predicate[] {
        Arrays.stream(partitions).map(this::isIn).reduce(Or::new).orElseThrow()}));
    return true;
  }

  @Override
  default boolean truncatePartition(InternalRow partition) {
    return dropPartition(partition);
  }

  @Override
  default boolean truncatePartitions(InternalRow[] partitions) {
    return dropPartitions(partitions);
  }

  private Predicate isIn(InternalRow partition) {
    var columns = partitionSchema().fields();
    Predicate found = null;
    for (int i = 0; i < columns.length; i++) {
      Expression column = Expressions.column(Refusal.quoted(columns[i].name()));
      Object value = partition.get(i, columns[i].dataType());
      Predicate one = value == null ? new Predicate("IS_NULL", new Expression[] {column})
          : new Predicate("=", new Expression[] {
              column, new LiteralValue<>(value, columns[i].dataType())});
      found = found == null ? one : new And(found, one);
    }
    return found;
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
