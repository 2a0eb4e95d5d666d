package io.plake.spark.reader;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.CRC32;
import org.roaringbitmap.RoaringBitmap;

/**
 * The deletion vector of one file. Tasks read it: the driver only knows where it is, or has a copy
 * of a small one.
 *
 * <p>The bytes are those of {@code lakehouse_source/deletion.py}, and the same things are
 * checked.
 */
final class DeletedRows implements Serializable {
  private static final long serialVersionUID = 1;

  private static final int MAGIC = 0xD1D33964;
  private static final int CHECKSUM_BYTES = 4;
  private static final int NO_BITMAP_BYTES = 20; // length, magic, count of bitmaps, checksum

  private final String file;
  private final String puffin;
  private final long offset;
  private final int length;
  private final long cardinality;
  private final long rowCount;
  private final byte[] copy;

  /**
   * @param puffin on this machine
   * @param file as the catalog has it
   * @param found as {@code Vocabulary.Files.DELETED} tells
   */
  DeletedRows(String puffin, String file, List<?> found) {
    this.file = file;
    this.cardinality = ((Number) found.get(0)).longValue();
    this.rowCount = ((Number) found.get(1)).longValue();
    this.puffin = puffin;
    this.offset = ((Number) found.get(3)).longValue();
    this.length = ((Number) found.get(4)).intValue();
    this.copy = found.get(5) == null ? null : HexFormat.of().parseHex((String) found.get(5));
  }

  /** A bit for each row up to the last one that is deleted. */
  long[] bits() {
    try {
      return decoded(copy == null ? read() : copy);
    } catch (BufferUnderflowException e) {
      throw damaged("it ends too early");
    } catch (IOException e) {
      throw new UncheckedIOException(puffin + ": the deletion vector of " + file
          + " cannot be read", e);
    }
  }

  static boolean contains(long[] bits, long row) {
    int word = (int) (row >>> 6);
    return word < bits.length && (bits[word] >>> row & 1) != 0;
  }

  private byte[] read() throws IOException {
    ByteBuffer blob = ByteBuffer.allocate(length);
    try (FileChannel channel = FileChannel.open(Path.of(puffin), StandardOpenOption.READ)) {
      while (blob.hasRemaining()) {
        if (channel.read(blob, offset + blob.position()) < 0) {
          throw new BufferUnderflowException();
        }
      }
    }
    return blob.array();
  }

  private long[] decoded(byte[] bytes) throws IOException {
    if (bytes.length < NO_BITMAP_BYTES) {
      throw damaged(bytes.length + " bytes are too few");
    }
    ByteBuffer blob = ByteBuffer.wrap(bytes); // big-endian
    int body = blob.getInt();
    int held = bytes.length - Integer.BYTES - CHECKSUM_BYTES;
    if (body != held) {
      throw damaged("it says " + body + " bytes and has " + held);
    }
    if (blob.getInt() != MAGIC) {
      throw damaged("its magic bytes are wrong");
    }
    CRC32 checksum = new CRC32();
    checksum.update(bytes, Integer.BYTES, body);
    if (blob.getInt(bytes.length - CHECKSUM_BYTES) != (int) checksum.getValue()) {
      throw damaged("its checksum is wrong");
    }
    blob.limit(bytes.length - CHECKSUM_BYTES);
    blob.order(ByteOrder.LITTLE_ENDIAN);
    long count = blob.getLong();
    RoaringBitmap rows = new RoaringBitmap();
    if (count > 0) {
      if (count > 1 || blob.getInt() != 0) {
        throw damaged("it deletes rows after the first 4,294,967,296");
      }
      rows.deserialize(blob);
    }
    long found = rows.getLongCardinality();
    if (found != cardinality) {
      throw damaged("it has " + found + " positions and the catalog says " + cardinality);
    }
    long last = rows.isEmpty() ? -1 : Integer.toUnsignedLong(rows.last());
    if (last >= rowCount) {
      throw damaged("it deletes row " + last + " of a file with " + rowCount + " rows");
    }
    long[] bits = new long[(int) ((last + 64) / 64)];
    rows.forEach((int row) -> bits[row >>> 6] |= 1L << row);
    return bits;
  }

  private IllegalStateException damaged(String reason) {
    return new IllegalStateException(
        puffin + ": the deletion vector of " + file + " cannot be read: " + reason);
  }
}
