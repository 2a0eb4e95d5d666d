package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;

/** The words of a statement, without comments, and how far they are read. */
final class StatementWords {
  final String text;
  private final List<Token> tokens;
  private int at;

  StatementWords(String text) {
    this.text = text;
    SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
    lexer.removeErrorListeners();
    this.tokens = lexer.getAllTokens().stream()
        .filter(token -> token.getChannel() == Token.DEFAULT_CHANNEL)
        .collect(Collectors.toCollection(ArrayList::new));
    while (!tokens.isEmpty() && tokens.get(tokens.size() - 1).getText().equals(";")) {
      tokens.remove(tokens.size() - 1);
    }
  }

  boolean isDone() {
    return at == tokens.size();
  }

  private String word(int place) {
    return place < tokens.size() ? tokens.get(place).getText() : "";
  }

  /** Goes on where these words come next. */
  boolean take(String... expected) {
    for (int i = 0; i < expected.length; i++) {
      if (!word(at + i).equalsIgnoreCase(expected[i])) {
        return false;
      }
    }
    at += expected.length;
    return true;
  }

  boolean isNext(String expected) {
    return word(at).equalsIgnoreCase(expected);
  }

  boolean skip() {
    at++;
    return at <= tokens.size();
  }

  /** The next word, where it has this form. */
  String taken(Pattern form) {
    var found = form.matcher(word(at));
    return found.matches() ? tokens.get(at++).getText() : null;
  }

  /** The parts of the name that comes next; null: no name. */
  List<String> name(ParserInterface spark) throws ParseException {
    int first = at;
    if (isDone() || !isNamed(word(at))) {
      return null;
    }
    at++;
    while (word(at).equals(".") && isNamed(word(at + 1))) {
      at += 2;
    }
    return asJava(spark.parseMultipartIdentifier(slice(first, at)));
  }

  private static boolean isNamed(String word) {
    int first = word.isEmpty() ? ' ' : word.codePointAt(0);
    return first == '`' || first == '_' || Character.isLetterOrDigit(first);
  }

  /** The text up to one of some words, or to the end. */
  String until(String... words) {
    Set<String> ends = Set.of(words);
    int first = at;
    while (!isDone() && !ends.contains(word(at).toUpperCase(Locale.ROOT))) {
      at++;
    }
    return first == at ? "" : slice(first, at);
  }

  /** The text between parentheses that come next; null: they do not, or it is empty. */
  String inParentheses() {
    int first = at + 1;
    int depth = 0;
    do {
      depth += word(at).equals("(") ? 1 : word(at).equals(")") ? -1 : 0;
      at++;
    } while (depth > 0 && !isDone());
    return depth == 0 && at > first + 1 ? slice(first, at - 1) : null;
  }

  /** The text of some tokens, which count code points. */
  private String slice(int first, int end) {
    return text.substring(text.offsetByCodePoints(0, tokens.get(first).getStartIndex()),
        text.offsetByCodePoints(0, tokens.get(end - 1).getStopIndex() + 1));
  }
}
