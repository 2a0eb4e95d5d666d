package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.core.Channel;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.WriteCommands.WriteInfo;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that is created, or replaced, by the rows of one query (CTAS, RTAS).
 *
 * <p>The write does it all in its one transaction: rows, schema, properties and name. Before it
 * commits there is nothing to undo.
 */
public final class TableToCreate extends PlakeSource.Written implements StagedTable {
  private final Channel channel;
  private final ObjectNode request;
  private final Map<String, String> options;
  private final JsonNode staged;
  private final String name;
  private final Transform[] partitioning;
  private final Runnable undo;
  private boolean isWritten = false;

  /** @param undo frees what was made before the write, where it fails; null: there is nothing */
  public TableToCreate(
      Channel channel, ObjectNode request, Column[] columns, Transform[] partitioning,
      Runnable undo) {
    super(new PlakeSource(), CatalogV2Util.v2ColumnsToStructType(columns));
    this.channel = channel;
    this.request = request;
    this.partitioning = partitioning;
    this.undo = undo;
    JsonNode body = channel.read(request).body();
    this.name = body.get(Vocabulary.ResponseKey.TABLE).asText();
    this.options = PlakeTable.texts(body.get(Vocabulary.ResponseKey.OPTIONS));
    this.staged = body.get(Vocabulary.ResponseKey.STAGED);
  }

  /** The options by which plake's writer finds what it is to create. */
  public CaseInsensitiveStringMap options() {
    return new CaseInsensitiveStringMap(options);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String toString() {
    return name;
  }

  @Override
  public Transform[] partitioning() {
    return partitioning.clone();
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    isWritten = true;
    Map<String, String> all = PlakeTable.withoutPlace(info.options());
    all.putAll(options);
    SealedOptions.put(all, Vocabulary.Message.STAGED, staged);
    return super.newWriteBuilder(new WriteInfo(info, new CaseInsensitiveStringMap(all)));
  }

  /** The write has committed. Without one, the table gets its columns and no row. */
  @Override
  public void commitStagedChanges() {
    if (!isWritten) {
      request.put(Vocabulary.RequestKey.COMMAND, Vocabulary.RequestKind.CREATE);
      channel.change(request);
    }
  }

  /** A write that failed has deleted its files. */
  @Override
  public void abortStagedChanges() {
    if (undo != null) {
      undo.run();
    }
  }
}
