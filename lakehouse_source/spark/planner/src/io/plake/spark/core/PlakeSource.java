package io.plake.spark.core;

import io.plake.spark.core.StaticConfiguration.InstalledPyspark;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * Spark's data source for plake's code in Python, which tells plake's errors as plake tells them.
 *
 * <p>Spark's own one puts a Python traceback into its message, at whose end is what plake said.
 */
public class PlakeSource extends PythonDataSourceV2 {
  private UserDefinedPythonDataSource withErrors;

  @SuppressWarnings("this-escape") // Spark's method only sets a field
  public PlakeSource() {
    super.setShortName(Relations.SOURCE);
  }

  /** A table of Spark's own class, which is written to by the options of the write. */
  public static PythonTable table(StructType schema) {
    return new Written(new PlakeSource(), schema);
  }

  /** Spark's table of a Python source, to which rows go in batches ({@link BatchWrites}). */
  public static class Written extends PythonTable {
    private final PlakeSource source;

    public Written(PlakeSource source, StructType schema) {
      super(source, Relations.SOURCE, schema);
      this.source = source;
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return builder(source, info);
    }
  }

  private static WriteBuilder builder(PlakeSource source, LogicalWriteInfo info) {
    return new PythonWriteBuilder(source, Relations.SOURCE, info) {
      private boolean truncates = false;

      @Override
      public WriteBuilder truncate() {
        truncates = true;
        return super.truncate();
      }

      @Override
      public Write build() {
        return inBatches(source, info, truncates);
      }
    };
  }

  private static Write inBatches(PlakeSource source, LogicalWriteInfo info, boolean truncates) {
    return new PythonWrite(source, Relations.SOURCE, info, truncates) {
      @Override
      public BatchWrite toBatch() {
        return batch(source, info, truncates);
      }

      @Override
      public StreamingWrite toStreaming() {
        return stream(source, info, truncates);
      }
    };
  }

  private static BatchWrite batch(PlakeSource source, LogicalWriteInfo info, boolean truncates) {
    return new PythonBatchWrite(source, Relations.SOURCE, info, truncates) {
      @Override
      public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo tasks) {
        return BatchWrites.of(super.createBatchWriterFactory(tasks));
      }
    };
  }

  private static StreamingWrite stream(
      PlakeSource source, LogicalWriteInfo info, boolean truncates) {
    return new PythonStreamingWrite(source, Relations.SOURCE, info, truncates) {
      @Override
      public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo tasks) {
        return BatchWrites.of(super.createStreamingWriterFactory(tasks));
      }
    };
  }

  @Override
  public synchronized UserDefinedPythonDataSource source() {
    if (withErrors == null) {
      withErrors = withErrors(super.source());
    }
    return withErrors;
  }

  /** The same source, with plake's text first in the errors of planning and committing. */
  public static UserDefinedPythonDataSource withErrors(UserDefinedPythonDataSource stock) {
    return stock instanceof Telling ? stock : new Telling(stock);
  }

  private static final class Telling extends UserDefinedPythonDataSource {
    private static final long serialVersionUID = 1;
    private final transient UserDefinedPythonDataSource stock;
    private final transient UserDefinedPythonDataSource ours;

    Telling(UserDefinedPythonDataSource stock) {
      super(StaticConfiguration.restored(stock.dataSourceCls()));
      this.stock = new UserDefinedPythonDataSource(InstalledPyspark.ofTasks(stock.dataSourceCls()));
      this.ours = new UserDefinedPythonDataSource(entry(dataSourceCls()));
    }

    /**
     * The function that makes the data source with options of the extension: the pickle of another
     * class. No name in SQL and no option leads to that class.
     */
    private static PythonFunction entry(PythonFunction stock) {
      return new SimplePythonFunction(
          pickle(Vocabulary.Entry.CLASS, ""), stock.envVars(), stock.pythonIncludes(),
          stock.pythonExec(), stock.pythonVer(), stock.broadcastVars(), stock.accumulator());
    }

    /** The pickle of a class of plake's module, and what is done with it. */
    private static byte[] pickle(String name, String use) {
      return ("c" + Vocabulary.Entry.MODULE + "\n" + name + "\n" + use + ".")
          .getBytes(StandardCharsets.US_ASCII);
    }

    /** Tasks get Spark's own class: executors need none of the jar. */
    private Object writeReplace() {
      return stock;
    }

    // Scala does not declare the AnalysisException that Spark throws in these methods.

    @Override
    public PythonDataSourceCreationResult createDataSourceInPython(
        String shortName, CaseInsensitiveStringMap options, Option<StructType> schema) {
      CaseInsensitiveStringMap opened = SessionTimes.in(
          SealedOptions.opened(Channel.inTransaction(options)));
      try {
        return made(opened, schema);
      } catch (Exception e) {
        throw Refusal.raised(e);
      }
    }

    /**
     * Makes the instance in the worker that plans reads. Spark has a worker of its own for this, so
     * that the first query would wait until two Python processes have started.
     */
    private PythonDataSourceCreationResult made(
        CaseInsensitiveStringMap options, Option<StructType> schema) {
      var given = Envelope.object()
          .put(Vocabulary.Entry.SEALED, SealedOptions.areIn(options))
          .put(Vocabulary.Entry.SCHEMA, schema.isEmpty());
      var texts = given.putObject(Vocabulary.Entry.OPTIONS);
      options.forEach(texts::put);
      String text = Base64.getEncoder().encodeToString(
          given.toString().getBytes(StandardCharsets.UTF_8));
      StructType none = new StructType();
      byte[] maker = pickle(Vocabulary.Entry.MAKER, "(V" + text + "\ntR");
      var found = Envelope.responseIn(super.createReadInfoInPython(
          new PythonDataSourceCreationResult(maker, none), none, false).partitions().head());
      return new PythonDataSourceCreationResult(
          Base64.getDecoder().decode((String) found.get(Vocabulary.Entry.INSTANCE)),
          schema.isDefined() ? schema.get()
              : (StructType) DataType.fromJson((String) found.get(Vocabulary.Entry.SCHEMA)));
    }

    @Override
    public PythonDataSourceReadInfo createReadInfoInPython(
        PythonDataSourceCreationResult made, StructType schema, boolean isStreaming) {
      try {
        return super.createReadInfoInPython(made, schema, isStreaming);
      } catch (Exception e) {
        throw Refusal.raised(e);
      }
    }

    @Override
    public PythonDataSourceWriteInfo createWriteInfoInPython(
        String shortName, StructType schema, CaseInsensitiveStringMap options, boolean overwrite,
        boolean isStreaming) {
      CaseInsensitiveStringMap opened = SealedOptions.opened(
          Channel.inTransaction(isStreaming ? options : Channel.withSettings(options)));
      try {
        return SealedOptions.areIn(opened)
            ? ours.createWriteInfoInPython(shortName, schema, opened, overwrite, isStreaming)
            : super.createWriteInfoInPython(shortName, schema, opened, overwrite, isStreaming);
      } catch (Exception e) {
        throw isStreaming ? Refusal.ofStream(e) : Refusal.raised(e);
      }
    }

    @Override
    public void commitWriteInPython(byte[] writer, WriterCommitMessage[] messages, boolean abort) {
      try {
        super.commitWriteInPython(writer, messages, abort);
        if (!abort) {
          LastCommit.put(writer);
        }
      } catch (Exception e) {
        throw Refusal.raised(e);
      }
    }
  }
}
