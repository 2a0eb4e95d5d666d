package io.plake.spark;

import io.plake.spark.catalog.PlakeChangelog;
import io.plake.spark.catalog.PlakeTable;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@link PlakeSessionCatalog} with changes of tables, from Spark 4.2 on: 4.1 lacks their classes.
 */
public final class PlakeSessionChangelogs extends PlakeSessionCatalog {

  @Override
  public Changelog loadChangelog(
      Identifier name, ChangelogContext requested, CaseInsensitiveStringMap options)
      throws NoSuchTableException {
    var table = loadTable(name);
    return table instanceof PlakeTable ours
        ? new PlakeChangelog(ours.changes(PlakeChangelog.options(requested, options)))
        : super.loadChangelog(name, requested, options);
  }

  @Override
  public Set<String> changelogStateOptionKeys() {
    return PlakeChangelog.stateOptions();
  }
}
