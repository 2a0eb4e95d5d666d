package io.plake.spark.format;

import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.StreamErrors;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;

/**
 * Lets streams into a path tell plake's errors as plake tells them, where the format {@code plake} is
 * the Python source and not {@link PlakeProvider}.
 */
public final class StreamWrites extends Rule<LogicalPlan> {

  @Override
  @SuppressWarnings("deprecation") // schema() of a table
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteToStream write)) {
      return plan;
    }
    if (!Relations.isOn() || !Relations.isFrame(write.sink())) {
      return plan;
    }
    Sink sink = new Sink(write.sink().schema());
    return Rewrite.copy(write, part -> part == write.sink() ? sink : part);
  }

  private static final class Sink extends PythonTable {
    Sink(StructType schema) {
      super(new PlakeSource(), Relations.SOURCE, schema);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return StreamErrors.of(NamedSinks.orPath(info, super::newWriteBuilder));
    }
  }
}
