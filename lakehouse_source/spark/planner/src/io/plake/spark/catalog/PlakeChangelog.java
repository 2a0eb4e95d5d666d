package io.plake.spark.catalog;

import io.plake.spark.core.SessionTimes;
import io.plake.spark.core.Vocabulary;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@link ChangesTable} for {@code t CHANGES FROM VERSION 2 TO VERSION 5}, which Spark has from 4.2
 * on.
 *
 * <p>plake's feed has no rows that were carried over, tells of updates as such, and finds the net
 * changes itself. Spark therefore adds nothing to the query, and pushes columns and conditions
 * down.
 */
public final class PlakeChangelog implements Changelog {
  private final ChangesTable table;

  public PlakeChangelog(ChangesTable table) {
    this.table = table;
  }

  /** The options that mean what a query says, beside those that the user gave. */
  public static Map<String, String> options(ChangelogContext requested, CaseInsensitiveStringMap given) {
    Map<String, String> all = new HashMap<>(given.asCaseSensitiveMap());
    for (String own : OWN) {
      all.keySet().removeIf(own::equalsIgnoreCase);
    }
    ChangelogRange range = requested.range();
    if (range instanceof ChangelogRange.VersionRange versions) {
      all.put(Vocabulary.Changes.STARTING_VERSION, versions.startingVersion());
      versions.endingVersion().ifPresent(
          version -> all.put(Vocabulary.Changes.ENDING_VERSION, version));
    }
    if (range instanceof ChangelogRange.TimestampRange moments) {
      all.put(
          Vocabulary.Changes.STARTING_TIMESTAMP, SessionTimes.text(moments.startingTimestamp()));
      moments.endingTimestamp().ifPresent(moment -> all.put(
          Vocabulary.Changes.ENDING_TIMESTAMP, SessionTimes.text(moment)));
    }
    if (!(range instanceof ChangelogRange.UnboundedRange)) {
      all.put(
          Vocabulary.Changes.STARTING_INCLUSIVE, Boolean.toString(range.startingBoundInclusive()));
      all.put(Vocabulary.Changes.ENDING_INCLUSIVE, Boolean.toString(range.endingBoundInclusive()));
    }
    all.put(Vocabulary.Changes.DEDUPLICATION, requested.deduplicationMode().value());
    all.put(Vocabulary.Changes.COMPUTE_UPDATES, Boolean.toString(requested.computeUpdates()));
    return all;
  }

  /** Options that decide what the changes are. Spark gives no others from 4.3 on. */
  public static Set<String> stateOptions() {
    return Set.of(
        Vocabulary.Changes.COLUMNS, Vocabulary.Changes.WHERE, Vocabulary.Changes.SPLIT_SIZE);
  }

  private static final String[] OWN = {
    Vocabulary.Changes.STARTING_VERSION, Vocabulary.Changes.ENDING_VERSION,
    Vocabulary.Changes.STARTING_TIMESTAMP, Vocabulary.Changes.ENDING_TIMESTAMP,
    Vocabulary.Changes.STARTING_INCLUSIVE, Vocabulary.Changes.ENDING_INCLUSIVE,
    Vocabulary.Changes.DEDUPLICATION, Vocabulary.Changes.COMPUTE_UPDATES,
  };

  @Override
  public String name() {
    return table.name();
  }

  @Override
  public Column[] columns() {
    return table.columns();
  }

  @Override
  public boolean containsCarryoverRows() {
    return false;
  }

  @Override
  public boolean containsIntermediateChanges() {
    return false;
  }

  @Override
  public boolean representsUpdateAsDeleteAndInsert() {
    return false;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return table.newScanBuilder(options);
  }
}
