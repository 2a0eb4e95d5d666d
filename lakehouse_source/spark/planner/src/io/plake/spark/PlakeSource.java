package io.plake.spark;

import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * Spark's data source for plake's code in Python, which tells plake's errors as plake tells them.
 *
 * <p>Spark's own one puts a Python traceback into its message, at whose end is what plake said.
 */
class PlakeSource extends PythonDataSourceV2 {
  private UserDefinedPythonDataSource telling;

  PlakeSource() {
    this(IsolateScans.SOURCE);
  }

  PlakeSource(String shortName) {
    super.setShortName(shortName);
  }

  @Override
  public synchronized UserDefinedPythonDataSource source() {
    if (telling == null) {
      telling = telling(super.source());
    }
    return telling;
  }

  /** The same source, with plake's text first in the errors of planning and committing. */
  static UserDefinedPythonDataSource telling(UserDefinedPythonDataSource stock) {
    return stock instanceof Telling ? stock : new Telling(stock);
  }

  private static final class Telling extends UserDefinedPythonDataSource {
    private static final long serialVersionUID = 1;
    private final transient UserDefinedPythonDataSource stock;

    Telling(UserDefinedPythonDataSource stock) {
      super(stock.dataSourceCls());
      this.stock = stock;
    }

    /** Tasks get Spark's own class: executors need none of the jar. */
    private Object writeReplace() {
      return stock;
    }

    // Scala does not declare the AnalysisException that Spark throws in these methods.

    @Override
    public PythonDataSourceCreationResult createDataSourceInPython(
        String shortName, CaseInsensitiveStringMap options, Option<StructType> schema) {
      try {
        return super.createDataSourceInPython(shortName, options, schema);
      } catch (Exception e) {
        throw Refusal.told(e);
      }
    }

    @Override
    public PythonDataSourceReadInfo createReadInfoInPython(
        PythonDataSourceCreationResult made, StructType schema, boolean isStreaming) {
      try {
        return super.createReadInfoInPython(made, schema, isStreaming);
      } catch (Exception e) {
        throw Refusal.told(e);
      }
    }

    @Override
    public PythonDataSourceWriteInfo createWriteInfoInPython(
        String shortName, StructType schema, CaseInsensitiveStringMap options, boolean overwrite,
        boolean isStreaming) {
      try {
        return super.createWriteInfoInPython(shortName, schema, options, overwrite, isStreaming);
      } catch (Exception e) {
        throw isStreaming ? Refusal.toldInStream(e) : Refusal.told(e);
      }
    }

    @Override
    public void commitWriteInPython(
        byte[] writer, WriterCommitMessage[] messages, boolean abort) {
      try {
        super.commitWriteInPython(writer, messages, abort);
      } catch (Exception e) {
        throw Refusal.told(e);
      }
    }
  }
}
