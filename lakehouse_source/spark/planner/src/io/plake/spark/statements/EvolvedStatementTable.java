package io.plake.spark.statements;

import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;

/** The target of a MERGE WITH SCHEMA EVOLUTION that has its new columns. Not on 4.1. */
public final class EvolvedStatementTable extends StatementTable implements SupportsSchemaEvolution {

  public EvolvedStatementTable(PythonDataSourceV2 frame, StructType schema, long version) {
    super(frame, schema, version, true);
  }

  @Override
  public boolean supportsColumnChange(TableChange.ColumnChange change) {
    return false;
  }
}
