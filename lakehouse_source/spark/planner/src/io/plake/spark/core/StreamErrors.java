package io.plake.spark.core;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import org.apache.commons.lang3.ClassUtils;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * Lets Spark's objects of a stream raise errors of plake with plake's text, and no Python
 * traceback.
 *
 * <p>Every call goes to Spark's own object. What leads from a table to its stream is wrapped in the
 * same way; what goes to executors is not: they need none of the jar.
 */
public final class StreamErrors implements InvocationHandler {
  private static final List<Class<?>> WRAPPED = List.of(
      ScanBuilder.class, Scan.class, MicroBatchStream.class,
      WriteBuilder.class, Write.class, StreamingWrite.class);

  /** What Spark says of a Python process that did not connect in time. */
  private static final String LATE = "Python worker failed to connect back.";

  /** Some minutes of a machine that is busy otherwise. */
  private static final int STARTS = 30;

  private final Object stock;

  private StreamErrors(Object stock) {
    this.stock = stock;
  }

  /** An object with all interfaces of another one, which Spark tells by what it can do. */
  @SuppressWarnings("unchecked")
  public static <T> T of(T stock) {
    return (T) Proxy.newProxyInstance(
        StreamErrors.class.getClassLoader(),
        ClassUtils.getAllInterfaces(stock.getClass()).toArray(new Class<?>[0]),
        new StreamErrors(stock));
  }

  public static boolean areOf(Object object) {
    return Proxy.isProxyClass(object.getClass())
        && Proxy.getInvocationHandler(object) instanceof StreamErrors;
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    if (method.getName().equals("equals")) {
      return proxy == arguments[0];
    }
    try {
      Object found = method.getName().equals("toMicroBatchStream")
          ? started(method, arguments) : method.invoke(stock, arguments);
      if (found == stock) {
        return proxy;
      }
      return WRAPPED.stream().anyMatch(kind -> kind.isInstance(found)) ? of(found) : found;
    } catch (InvocationTargetException e) {
      throw unchecked(Refusal.retold(e.getCause(), false));
    }
  }

  /**
   * A stream with its Python process, which is a new one for each.
   *
   * <p>Spark waits 10 s for it to connect, and gives the stream up. Many that start at once on few
   * cores need longer: one starts at a time, and again where the machine was busy otherwise. A
   * query that is stopped looks as if it were late.
   */
  private Object started(Method method, Object[] arguments) throws ReflectiveOperationException {
    synchronized (WRAPPED) {
      for (int tries = 1; ; tries++) {
        try {
          return method.invoke(stock, arguments);
        } catch (InvocationTargetException e) {
          boolean isLate = ExceptionUtils.getThrowableList(e).stream()
              .anyMatch(one -> LATE.equals(one.getMessage()));
          if (!isLate || tries == STARTS || Thread.currentThread().isInterrupted()) {
            throw e;
          }
        }
      }
    }
  }

  /**
   * A proxy throws no other exceptions. Spark tells an interruption from a failure by its class.
   */
  private static Throwable unchecked(Throwable raised) {
    if (raised instanceof RuntimeException || raised instanceof Error) {
      return raised;
    }
    if (raised instanceof InterruptedException) {
      return new UncheckedIOException(new InterruptedIOException(raised.getMessage()));
    }
    return raised instanceof IOException failed ? new UncheckedIOException(failed)
        : new IllegalStateException(raised.getMessage(), raised);
  }
}
