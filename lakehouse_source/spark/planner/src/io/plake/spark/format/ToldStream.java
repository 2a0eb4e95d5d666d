package io.plake.spark.format;

import io.plake.spark.core.Refusal;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.AcceptsLatestSeenOffset;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** Spark's stream of a Python source, with plake's text first in errors of plake. */
class ToldStream implements MicroBatchStream {
  private final MicroBatchStream stock;

  private ToldStream(MicroBatchStream stock) {
    this.stock = stock;
  }

  /** Spark looks at what a stream can do. That differs between 4.1 and 4.3. */
  static MicroBatchStream of(MicroBatchStream stock) {
    if (stock instanceof SupportsTriggerAvailableNow) {
      return new Ending((SupportsTriggerAvailableNow) stock);
    }
    if (stock instanceof SupportsAdmissionControl) {
      return new Limited((SupportsAdmissionControl) stock);
    }
    return stock instanceof AcceptsLatestSeenOffset
        ? new Seeing((AcceptsLatestSeenOffset) stock) : new ToldStream(stock);
  }

  @Override
  public Offset initialOffset() {
    try {
      return stock.initialOffset();
    } catch (Exception e) {
      throw Refusal.toldInStream(e);
    }
  }

  @Override
  public Offset latestOffset() {
    try {
      return stock.latestOffset();
    } catch (Exception e) {
      throw Refusal.toldInStream(e);
    }
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    try {
      return stock.planInputPartitions(start, end);
    } catch (Exception e) {
      throw Refusal.toldInStream(e);
    }
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return stock.createReaderFactory();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return stock.deserializeOffset(json);
  }

  @Override
  public void commit(Offset end) {
    stock.commit(end);
  }

  @Override
  public void stop() {
    stock.stop();
  }

  @Override
  public String toString() {
    return String.valueOf(stock);
  }

  /** Spark 4.1. */
  private static final class Seeing extends ToldStream implements AcceptsLatestSeenOffset {
    private final AcceptsLatestSeenOffset stock;

    Seeing(AcceptsLatestSeenOffset stock) {
      super((MicroBatchStream) stock);
      this.stock = stock;
    }

    @Override
    public void setLatestSeenOffset(Offset offset) {
      stock.setLatestSeenOffset(offset);
    }
  }

  private static class Limited extends ToldStream implements SupportsAdmissionControl {
    private final SupportsAdmissionControl stock;

    Limited(SupportsAdmissionControl stock) {
      super((MicroBatchStream) stock);
      this.stock = stock;
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
      return stock.getDefaultReadLimit();
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      try {
        return stock.latestOffset(start, limit);
      } catch (Exception e) {
        throw Refusal.toldInStream(e);
      }
    }

    @Override
    public Offset reportLatestOffset() {
      return stock.reportLatestOffset();
    }
  }

  private static final class Ending extends Limited implements SupportsTriggerAvailableNow {
    private final SupportsTriggerAvailableNow stock;

    Ending(SupportsTriggerAvailableNow stock) {
      super(stock);
      this.stock = stock;
    }

    @Override
    public void prepareForTriggerAvailableNow() {
      try {
        stock.prepareForTriggerAvailableNow();
      } catch (Exception e) {
        throw Refusal.toldInStream(e);
      }
    }
  }
}
