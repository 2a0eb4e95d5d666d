package io.plake.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets streams into a path tell plake's errors as plake tells them, where the format {@code plake} is
 * the Python source and not {@link PlakeProvider}.
 */
final class StreamWrites extends Rule<LogicalPlan> {

  @Override
  @SuppressWarnings("deprecation") // schema() of a table
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteToStream) || !IsolateScans.isOn()) {
      return plan;
    }
    WriteToStream write = (WriteToStream) plan;
    if (!isOurs(write.sink())) {
      return plan;
    }
    Object[] arguments = CollectionConverters.asJava(write.productIterator().toSeq()).toArray();
    for (int i = 0; i < arguments.length; i++) {
      if (arguments[i] == write.sink()) {
        arguments[i] = new Sink(write.sink().schema());
      }
    }
    return write.makeCopy(arguments);
  }

  private static boolean isOurs(Object sink) {
    return sink.getClass() == PythonTable.class
        && IsolateScans.SOURCE.equalsIgnoreCase(((PythonTable) sink).name());
  }

  private static final class Sink extends PythonTable {
    Sink(StructType schema) {
      super(new PlakeSource(), IsolateScans.SOURCE, schema);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new ToldWrites(super.newWriteBuilder(info));
    }
  }
}
