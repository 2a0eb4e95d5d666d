package io.plake.spark.catalog;

import io.plake.spark.core.Channel;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.StreamErrors;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.WriteCommands.WriteInfo;
import io.plake.spark.scan.ConditionData;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A write to a table of Spark's catalog by plake's writer in Python.
 *
 * <p>What is replaced travels in options: all rows, those of a condition, or the partitions that
 * the new rows belong to.
 */
final class TableWrites implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final StructType table;
  private final boolean isPartitioned;
  private final LogicalWriteInfo info;
  private final Map<String, String> options;
  private boolean overwrites = false;

  /** @param isPartitioned whether a dynamic overwrite replaces partitions, and not all rows */
  TableWrites(
      StructType table, boolean isPartitioned, LogicalWriteInfo info,
      CaseInsensitiveStringMap options) {
    this.table = table;
    this.isPartitioned = isPartitioned;
    this.info = info;
    this.options = new HashMap<>(options.asCaseSensitiveMap());
    SealedOptions.put(this.options, Vocabulary.Message.MODE, Vocabulary.Mode.EXISTING);
    Channel.putClaims(this.options);
  }

  /** {@link #overwrite} says what is wrong with others. */
  @Override
  public boolean canOverwrite(Predicate[] conditions) {
    return true;
  }

  @Override
  public WriteBuilder overwrite(Predicate[] conditions) {
    ConditionData replaced = new ConditionData(table, conditions);
    if (!replaced.isWhole()) {
      throw Refusal.because("plake cannot replace the rows of this condition: "
          + Arrays.toString(conditions) + ". Compare columns with constants.");
    }
    SealedOptions.put(options, Vocabulary.Message.OVERWRITE, Envelope.list(replaced.terms()));
    overwrites = true;
    return this;
  }

  @Override
  public WriteBuilder truncate() {
    overwrites = true;
    return this;
  }

  @Override
  public WriteBuilder overwriteDynamicPartitions() {
    if (isPartitioned) {
      options.put("partitionOverwriteMode", "dynamic");
    }
    overwrites = true;
    return this;
  }

  @Override
  public Write build() {
    WriteBuilder write = PlakeSource.table(info.schema())
        .newWriteBuilder(new WriteInfo(info, new CaseInsensitiveStringMap(options)));
    return StreamErrors.of((overwrites ? ((SupportsTruncate) write).truncate() : write).build());
  }
}
