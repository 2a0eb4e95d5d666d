package io.plake.spark.catalog;

import java.util.List;
import java.util.stream.Collectors;

/**
 * What {@code DESCRIBE HISTORY} and {@code DESCRIBE DETAIL} select, by Delta's names of its
 * columns.
 */
final class DeltaAnswers {
  static final String DETAIL = "'plake' AS format, properties['comment'] AS description, location,"
      + " created_at AS createdAt,"
      + " last_modified AS lastModified, partition_columns AS partitionColumns,"
      + " clustering_columns AS clusteringColumns, num_files AS numFiles, size_bytes AS sizeInBytes,"
      + " properties, version, num_rows AS numRows";

  private static final String WRITES = "operation IN ('append', 'overwrite', 'overwrite where',"
      + " 'overwrite partitions')";
  private static final String ROWS = " OR operation IN ('create', 'replace')";
  private static final String OPERATION = "CASE WHEN " + WRITES + " THEN 'WRITE'"
      + " WHEN operation = 'create' THEN 'CREATE TABLE' || if(files_added > 0, ' AS SELECT', '')"
      + " WHEN operation = 'replace' THEN"
      + " 'CREATE OR REPLACE TABLE' || if(files_added > 0, ' AS SELECT', '')"
      + " WHEN operation = 'rewrite' THEN 'OPTIMIZE'"
      + " WHEN operation = 'set properties' THEN 'SET TBLPROPERTIES'"
      + " ELSE upper(operation) END";

  /** A name, its value as text, and for which commits it is told. */
  private static final List<List<String>> PARAMETERS = List.of(
      List.of("mode", "if(operation = 'append', 'Append', 'Overwrite')", WRITES),
      List.of("predicate", "coalesce(get_json_object(metadata, '$.where'), '[]')", of("rewrite")),
      List.of("version", "get_json_object(metadata, '$.restored_version')", of("restore")));
  private static final List<List<String>> METRICS = List.of(
      List.of("numFiles", "files_added", WRITES + ROWS),
      List.of("numOutputRows", "rows_added", WRITES + ROWS),
      List.of("numAddedFiles", "files_added", of("delete", "update", "rewrite")),
      List.of("numRemovedFiles", "files_removed", of("delete", "update", "rewrite", "restore")),
      List.of("numRestoredFiles", "files_added", of("restore")),
      List.of("numDeletedRows", "rows_deleted", of("delete")),
      List.of("numUpdatedRows", "rows_updated", of("update")),
      List.of("numTargetRowsInserted", "rows_inserted", of("merge")),
      List.of("numTargetRowsUpdated", "rows_updated", of("merge")),
      List.of("numTargetRowsDeleted", "rows_deleted", of("merge")),
      List.of("numTargetFilesAdded", "files_added", of("merge")),
      List.of("numTargetFilesRemoved", "files_removed", of("merge")));

  static final String HISTORY = "version, timestamp, committed_by AS userName, "
      + OPERATION + " AS operation, " + texts(PARAMETERS) + " AS operationParameters, "
      + texts(METRICS) + " AS operationMetrics, metadata AS userMetadata,"
      + " * EXCEPT (version, timestamp, operation)";

  private DeltaAnswers() {}

  private static String of(String... operations) {
    return "operation IN " + List.of(operations).stream().map(one -> "'" + one + "'")
        .collect(Collectors.joining(", ", "(", ")"));
  }

  /** A map of what is known of a commit. */
  private static String texts(List<List<String>> members) {
    return members.stream()
        .map(one -> String.format("'%s', if(%s, CAST(%s AS STRING), NULL)",
            one.get(0), one.get(2), one.get(1)))
        .collect(Collectors.joining(", ", "map_filter(map(", "), (k, v) -> v IS NOT NULL)"));
  }
}
