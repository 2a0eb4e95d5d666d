package io.plake.spark.core;

import java.io.File;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;

/**
 * What the application's own configuration says about variables and hosts, for planning workers.
 *
 * <p>They get it in their environment: {@code SET}, options and plans change no environment. The
 * other side is {@code lakehouse_source/spark/session/secrets.py}.
 */
final class StaticConfiguration {
  private static final String CATALOGS = "spark.sql.catalog.";
  private static final String TOKEN = "plake-token:"; // of Python's `secrets`: it shows nothing
  private static final Pattern URL = Pattern.compile(
      "(?<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?((?<user>[^/?#]*)@)?(?<hosts>[^/?#@]*)(?<rest>[^@]*)");
  private static final Pattern HOST = Pattern.compile("(\\[[^\\]]*]|[^:\\[\\]]*)(:[0-9]*)?");
  // Of names of options of stores: those that may name a host, and those that may be a key.
  private static final Pattern PLACE = Pattern.compile(
      "(?i)endpoint|host|url|authority|server|addr|proxy|account_name");
  private static final Pattern SECRET = Pattern.compile(
      "(?i)pass|secret|token|key|credential|signature|auth(?!ority)");

  /** The same function, for a worker that is told of the configuration. */
  static PythonFunction restored(PythonFunction source) {
    var found = Envelope.object();
    for (var one : SparkEnv.get().conf().getAll()) {
      String restored = restored(one._1(), one._2());
      if (restored != null) {
        found.put(one._1(), restored);
      }
    }
    Map<String, String> environment = InstalledPyspark.first(source.envVars());
    environment.put(Vocabulary.Setting.STATIC, found.toString());
    return InstalledPyspark.with(source, environment);
  }

  /** What is told of a setting: hosts, and never who logs in there or how. */
  private static String restored(String key, String value) {
    if (!key.startsWith(CATALOGS)) {
      return key.equals(Vocabulary.Setting.ENV_ALLOWED)
          || key.equals(Vocabulary.Setting.HOSTS_ALLOWED) ? value : null;
    }
    String name = key.substring(CATALOGS.length()).replaceFirst("^[^.]*\\.?", "");
    if (name.equals(Vocabulary.Place.CATALOG)) {
      return value.startsWith(TOKEN) ? value
          : value.matches("(?i)postgres(ql)?://.*") ? hosts(value, "host", "hostaddr", "port")
          : null;
    }
    if (name.equals(Vocabulary.Place.WAREHOUSE)) {
      return hosts(value, "endpoint_override");
    }
    return name.startsWith("storage.") && PLACE.matcher(name).find() && !SECRET.matcher(name).find()
        ? hosts(value) : null;
  }

  /**
   * A URL with the same hosts and nothing else, or the host itself, where a text is one.
   *
   * <p>Null: there is none, or a password may have been taken for a part of one, since its
   * characters are not escaped.
   */
  private static String hosts(String text, String... kept) {
    var found = URL.matcher(text);
    if (!found.matches()) {
      return null;
    }
    String hosts = found.group("hosts");
    for (String host : hosts.split(",")) {
      if (!HOST.matcher(host).matches()) {
        return null;
      }
    }
    String named = parameters(found.group("rest"), kept);
    if (hosts.isEmpty() && named.isEmpty()) {
      return null;
    }
    String scheme = found.group("scheme");
    if (scheme == null) {
      return hosts;
    }
    String user = found.group("user"); // Azure: the container
    boolean isContainer = user != null && !user.contains(":")
        && scheme.matches("(?i)(abfs|wasb)s?://");
    return scheme + (isContainer ? user + "@" : "") + hosts + "/" + named;
  }

  private static String parameters(String url, String... kept) {
    List<String> found = new ArrayList<>();
    for (String one : url.replaceFirst("^[^?]*\\??", "").split("&")) {
      if (Arrays.asList(kept).contains(one.replaceFirst("=.*", ""))) {
        found.add(one);
      }
    }
    return found.isEmpty() ? "" : "?" + String.join("&", found);
  }

  /**
   * Lets Python workers run {@code sitecustomize.py} of this jar when they start: they import the
   * installed pyspark instead of Spark's zip. Python takes modules from a jar as from any zip.
   *
   * <p>Only on the driver's machine: on another one the jar's path may be anybody's file.
   */
  static final class InstalledPyspark {
    private InstalledPyspark() {}

    /** The function of tasks, which run on this machine if the master is local. */
    static PythonFunction ofTasks(PythonFunction source) {
      boolean isLocal = SparkEnv.get().conf().get("spark.master", "").matches("local(\\[.*)?");
      return isLocal ? with(source, first(source.envVars())) : source;
    }

    /** A worker's environment with the jar on its path. */
    static Map<String, String> first(Map<String, String> environment) {
      Map<String, String> found = new HashMap<>(environment);
      var place = InstalledPyspark.class.getProtectionDomain().getCodeSource();
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
}
