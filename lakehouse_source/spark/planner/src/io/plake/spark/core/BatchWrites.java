package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Sends rows to plake's writer in Python, and counts bytes row by row.
 *
 * <p>Spark's own writer computes the bytes of the whole Arrow batch after each row, in every column:
 * two thirds of the JVM's time of an append of eight columns. Here a batch ends by the bytes of its
 * rows, which are about those of Arrow. Executors load this class.
 */
final class BatchWrites implements DataWriterFactory, StreamingDataWriterFactory {
  private static final long serialVersionUID = 1L;

  /** In how many rows a batch is full whose bytes nobody knows. Spark writes none such. */
  private static final int UNKNOWN_ROWS = 1000;

  /** Spark's writer, which holds all that the worker has to be told. */
  private final PythonBatchWriterFactory stock;

  private BatchWrites(PythonBatchWriterFactory stock) {
    this.stock = stock;
  }

  /** A factory of a Python source, or Spark's own where it has to be that. */
  @SuppressWarnings("unchecked")
  static <T> T of(T stock) {
    return stock instanceof PythonBatchWriterFactory factory && PythonTask.isPossible()
        ? (T) new BatchWrites(factory) : stock;
  }

  @Override
  public DataWriter<InternalRow> createWriter(int partition, long task) {
    return new Writer(stock);
  }

  @Override
  public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
    return new Writer(stock);
  }

  private static final class Writer implements DataWriter<InternalRow> {
    private final PythonBatchWriterFactory stock;
    private final PythonTask task;
    private byte[] written;

    Writer(PythonBatchWriterFactory stock) {
      this.stock = stock;
      this.task = new PythonTask(stock.source());
    }

    @Override
    public void writeAll(Iterator<InternalRow> rows) {
      scala.collection.Iterator<ColumnarBatch> received = task.started(
          stock.pickledWriteFunc(), "write_to_data_source", stock.inputSchema(),
          UserDefinedPythonDataSource.writeOutputSchema(), stock.jobArtifactUUID(),
          stock.sessionUUID(),
          asScala(new Batches(rows, SQLConf.get().arrowMaxBytesPerBatch())));
      while (received.hasNext()) {
        ColumnarBatch batch = received.next();
        ArrowColumnVector message = ((ArrowColumnVector) batch.column(0)).getChild(0);
        for (int row = 0; row < batch.numRows(); row++) {
          written = message.getBinary(row);
        }
      }
      if (written == null) {
        throw new IllegalStateException("plake's writer told nothing of the files that it wrote");
      }
    }

    @Override
    public void write(InternalRow row) {
      throw new UnsupportedOperationException("plake's writer takes all rows of a task at once");
    }

    @Override
    public WriterCommitMessage commit() {
      return new PythonWriterCommitMessage(written);
    }

    @Override
    public void abort() {}

    @Override
    public void close() {}

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      return task.metrics();
    }
  }

  /** For each batch its rows. They are one object, which Spark writes before it asks for the next. */
  private static final class Batches implements Iterator<scala.collection.Iterator<InternalRow>> {
    private final Iterator<InternalRow> rows;
    private final long most;
    /** Python receives one column, a struct of the columns. */
    private final InternalRow struct = new GenericInternalRow(new Object[1]);

    Batches(Iterator<InternalRow> rows, long most) {
      this.rows = rows;
      this.most = most;
    }

    @Override
    public boolean hasNext() {
      return rows.hasNext();
    }

    @Override
    public scala.collection.Iterator<InternalRow> next() {
      return asScala(new Iterator<InternalRow>() {
        private long bytes = 0;

        @Override
        public boolean hasNext() {
          return (bytes == 0 || bytes < most) && rows.hasNext();
        }

        @Override
        public InternalRow next() {
          InternalRow row = rows.next();
          bytes += row instanceof UnsafeRow known ? known.getSizeInBytes() : most / UNKNOWN_ROWS + 1;
          struct.update(0, row);
          return struct;
        }
      });
    }
  }
}
