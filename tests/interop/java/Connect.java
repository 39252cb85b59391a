// An application that has nothing but the files of a connection Secret, with the Java client jetcd: java Connect.java
// DIRECTORY OTHER. The CA of OTHER is not that of the members.
//
// Prints a line for each chapter that passed. A line that begins with "please" is a request to the test around it,
// which answers with a line on standard input.

import static java.nio.charset.StandardCharsets.UTF_8;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class Connect {
  // On the page docs/tasks/clients.md.
  static Client connect(Path directory) throws Exception {
    var endpoints = Files.readString(directory.resolve("endpoints")).split(",");
    var builder = Client.builder().endpoints(endpoints);
    builder.sslContext(tls -> tls.trustManager(directory.resolve("ca.crt").toFile())
        .keyManager(directory.resolve("tls.crt").toFile(), directory.resolve("tls.key").toFile()));
    if (Files.exists(directory.resolve("password"))) {
      builder.user(ByteSequence.from(Files.readAllBytes(directory.resolve("username"))));
      builder.password(ByteSequence.from(Files.readAllBytes(directory.resolve("password"))));
    }
    return builder.build();
  }

  interface Chapter {
    void run(Client client, String prefix) throws Exception;
  }

  static ByteSequence bytes(String text) {
    return ByteSequence.from(text, UTF_8);
  }

  static <T> T got(CompletableFuture<T> answer) throws Exception {
    return answer.get(30, TimeUnit.SECONDS);
  }

  static void check(boolean good, Object what) {
    if (!good) {
      throw new AssertionError(what);
    }
  }

  /** The call fails with this in the message of the error, or of one that caused it. */
  static void refused(String words, int seconds, CompletableFuture<?> answer) throws Exception {
    try {
      answer.get(seconds, TimeUnit.SECONDS);
    } catch (Exception error) {
      var all = new StringBuilder();
      for (Throwable at = error; at != null; at = at.getCause()) {
        all.append(at).append(' ');
      }
      check(all.indexOf(words) >= 0, all);
      return;
    }
    throw new AssertionError("not refused");
  }

  static void keys(Client client, String prefix) throws Exception {
    got(client.getKVClient().put(bytes(prefix + "a"), bytes("1")));
    var found = got(client.getKVClient().get(bytes(prefix), GetOption.builder().isPrefix(true).build()));
    check(found.getCount() == 1 && found.getKvs().get(0).getValue().toString(UTF_8).equals("1"), found);
  }

  static void watch(Client client, String prefix) throws Exception {
    var put = got(client.getKVClient().put(bytes(prefix + "a"), bytes("2")));
    var from = WatchOption.builder().isPrefix(true).withRevision(put.getHeader().getRevision()).build();
    var seen = new CompletableFuture<String>();
    try (var watcher = client.getWatchClient().watch(bytes(prefix), from,
        answer -> answer.getEvents().forEach(event -> seen.complete(event.getKeyValue().getValue().toString(UTF_8))),
        seen::completeExceptionally)) {
      check(got(seen).equals("2"), seen);
    }
  }

  static void lease(Client client, String prefix) throws Exception {
    var lease = got(client.getLeaseClient().grant(600)).getID();
    var leased = PutOption.builder().withLeaseId(lease).build();
    got(client.getKVClient().put(bytes(prefix + "leased"), bytes("1"), leased));
    check(got(client.getLeaseClient().keepAliveOnce(lease)).getTTL() == 600, "kept alive");
    got(client.getLeaseClient().revoke(lease));
    check(got(client.getKVClient().get(bytes(prefix + "leased"))).getCount() == 0, "gone with its lease");
  }

  static void transaction(Client client, String prefix) throws Exception {
    var key = bytes(prefix + "a");
    var answer = got(client.getKVClient().txn().If(new Cmp(key, Cmp.Op.EQUAL, CmpTarget.value(bytes("2"))))
        .Then(Op.put(key, bytes("3"), PutOption.DEFAULT)).commit());
    check(answer.isSucceeded(), answer);
  }

  static void nothingElse(Client client, String prefix) throws Exception {
    refused("permission denied", 30, client.getKVClient().put(bytes("/other/a"), bytes("1")));
    refused("permission denied", 30, client.getKVClient().get(bytes("/other/a")));
  }

  /** Members with a certificate of another CA are not trusted. */
  static void otherAuthority(Path other, String prefix) throws Exception {
    try (var client = connect(other)) {
      // The library tries again and again, and does not say why.
      refused("", 2, client.getKVClient().get(bytes(prefix + "a")));
    }
  }

  static void please(String what) throws Exception {
    System.out.println("please " + what);
    while (System.in.read() != '\n') {}
  }

  /** The members forget the token of a login, as they do in a restart: the library logs in again. */
  static void forgotten(Client client, String prefix) throws Exception {
    please("forget the tokens");
    got(client.getKVClient().put(bytes(prefix + "a"), bytes("4")));
  }

  /** The password before is worth nothing, and the files read again are enough. */
  static void renewed(Path directory, String prefix) throws Exception {
    try (var before = connect(directory)) {
      got(before.getKVClient().put(bytes(prefix + "a"), bytes("5")));
      please("renew the Secret");
      if (Files.exists(directory.resolve("password"))) {
        refused("authentication failed", 30, before.getKVClient().put(bytes(prefix + "a"), bytes("6")));
      }
    }
    try (var client = connect(directory)) {
      got(client.getKVClient().put(bytes(prefix + "a"), bytes("7")));
    }
  }

  static void chapter(String name, Client client, String prefix, Chapter chapter) throws Exception {
    chapter.run(client, prefix);
    System.out.println("ok: " + name);
  }

  static void story(String[] arguments) throws Exception {
    var directory = Path.of(arguments[0]);
    var prefix = "/" + Files.readString(directory.resolve("username")) + "/";
    try (var client = connect(directory)) {
      chapter("keys", client, prefix, Connect::keys);
      chapter("a watch", client, prefix, Connect::watch);
      chapter("a lease", client, prefix, Connect::lease);
      chapter("a transaction", client, prefix, Connect::transaction);
      chapter("nothing else", client, prefix, Connect::nothingElse);
      chapter("a lost token", client, prefix, Connect::forgotten);
    }
    otherAuthority(Path.of(arguments[1]), prefix);
    System.out.println("ok: another CA");
    renewed(directory, prefix);
    System.out.println("ok: a renewed Secret");
  }

  /** Exits in any case: the library's threads would go on after a failure. */
  public static void main(String[] arguments) {
    try {
      story(arguments);
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }
}
