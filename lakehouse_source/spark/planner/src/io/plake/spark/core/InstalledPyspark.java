package io.plake.spark.core;

import java.io.File;
import java.net.URI;
import java.security.CodeSource;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;

/**
 * Lets Python workers run {@code sitecustomize.py} of this jar when they start: they import the
 * installed pyspark instead of Spark's zip. Python takes modules from a jar as from any zip.
 *
 * <p>Only on the driver's machine: on another one the jar's path may be anybody's file.
 */
final class InstalledPyspark {
  private InstalledPyspark() {}

  /** The function of tasks, which run on this machine if the master is local. */
  static PythonFunction ofTasks(PythonFunction source) {
    boolean isLocal = SparkEnv.get().conf().get("spark.master", "").matches("local(\\[.*)?");
    return isLocal ? with(source, first(source.envVars())) : source;
  }

  /** A worker's environment with the jar on its path. */
  static Map<String, String> first(Map<String, String> environment) {
    Map<String, String> found = new HashMap<>(environment);
    CodeSource place = InstalledPyspark.class.getProtectionDomain().getCodeSource();
    if (place != null && place.getLocation().getProtocol().equals("file")) {
      found.merge("PYTHONPATH", new File(URI.create(place.getLocation().toString())).getPath(),
          (others, jar) -> jar + File.pathSeparator + others);
    }
    return found;
  }

  static PythonFunction with(PythonFunction source, Map<String, String> environment) {
    return new SimplePythonFunction(
        source.command(), environment, source.pythonIncludes(), source.pythonExec(),
        source.pythonVer(), source.broadcastVars(), source.accumulator());
  }
}
