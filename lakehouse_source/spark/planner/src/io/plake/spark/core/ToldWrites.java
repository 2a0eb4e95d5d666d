package io.plake.spark.core;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Spark's writes by plake's writer in Python, of which those of streams have plake's text first in
 * errors of plake. In batches {@link PlakeSource} sees to that, which a stream does not ask to commit.
 */
public final class ToldWrites implements SupportsTruncate {
  private WriteBuilder stock;

  public ToldWrites(WriteBuilder stock) {
    this.stock = stock;
  }

  @Override
  public WriteBuilder truncate() {
    stock = ((SupportsTruncate) stock).truncate();
    return this;
  }

  @Override
  public Write build() {
    return new Told(stock.build());
  }

  private record Told(Write stock) implements Write {
    @Override
    public String description() {
      return stock.description();
    }

    /** What {@code explain()} shows. */
    @Override
    public String toString() {
      return String.valueOf(stock);
    }

    @Override
    public BatchWrite toBatch() {
      return stock.toBatch();
    }

    @Override
    public StreamingWrite toStreaming() {
      return new Batches(stock.toStreaming());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return stock.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return stock.reportDriverMetrics();
    }
  }

  /** The batches of a stream. */
  private record Batches(StreamingWrite stock) implements StreamingWrite {
    /** Executors get Spark's own: they need none of the jar. */
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return stock.createStreamingWriterFactory(info);
    }

    @Override
    public boolean useCommitCoordinator() {
      return stock.useCommitCoordinator();
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
      try {
        stock.commit(batch, messages);
      } catch (Exception e) {
        throw Refusal.toldInStream(e);
      }
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
      try {
        stock.abort(batch, messages);
      } catch (Exception e) {
        throw Refusal.toldInStream(e);
      }
    }

    @Override
    public String toString() {
      return String.valueOf(stock);
    }
  }
}
