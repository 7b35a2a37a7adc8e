// A worker of a queue and a consumer of an outbox's subscription, with JDBC: copy it, and change it. Java 17.
//
//   new Stacksaga(url, 30).work(queue, effect)             calls effect with each step; it returns the output, as JSON
//   new Stacksaga(url, 30).consume(subscription, effect)   the same in the transaction that acknowledges the message
//
// Both return after SIGTERM. An SQLException that the effect throws says by its SQLSTATE what the failure means.
import java.sql.*;
import java.util.*;
import java.util.concurrent.*;

public class Stacksaga {
    /** A row, as texts. While it is worked on, "lost" or "cancel_requested" may become "t": then end soon. */
    public static class Item extends ConcurrentHashMap<String, String> {}
    public interface Effect { String apply(Connection db, Item item) throws Exception; }
    private interface Turn { void take() throws Exception; }
    private record Call(String sql, String... arguments) {}
    private record Held(Item item, Call extension) {}

    private final String url, lease, name = "java-" + ProcessHandle.current().pid();
    private final CountDownLatch stopping = new CountDownLatch(1);
    private Connection db, other;
    private Call answer;                      // to a step, until it has arrived
    private volatile Held held;               // what is at hand, and what extends its lease
    private volatile Statement waiting;

    public Stacksaga(String url, long seconds) {
        // Strings as literals of any type, and no prepared statements, for PgBouncer in transaction mode.
        this.url = url + (url.contains("?") ? "&" : "?") + "stringtype=unspecified&prepareThreshold=0&connectTimeout=10&tcpKeepAlive=true";
        lease = seconds + " seconds";
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(main)));
        ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
        timer.scheduleWithFixedDelay(this::beat, seconds * 333, seconds * 333, TimeUnit.MILLISECONDS);
    }

    /** Ends after what is at hand. A cancel that arrives before its statement does nothing: again. */
    private void stop(Thread main) {
        stopping.countDown();
        for (Statement statement; main.isAlive();) {
            try {
                if ((statement = waiting) != null) statement.cancel();
                main.join(100);
            } catch (SQLException | InterruptedException error) { log("stop", error); }
        }
        Runtime.getRuntime().halt(0);         // otherwise it would be 143
    }
    private boolean stops() { return stopping.getCount() == 0; }

    /** The heartbeat, in a session of its own. When it fails the next one tries again: a lease lasts for three. */
    private void beat() {
        Held held = this.held;
        if (held == null || held.item.containsKey("lost")) return;
        try {
            if (other == null || !other.isValid(5)) other = DriverManager.getConnection(url);
            held.item.putAll(query(other, held.extension).get(0));
        } catch (SQLException error) {
            log("heartbeat", error);
            if (isOf(error, "SG")) held.item.put("lost", "t");   // somebody else's by now
        }
    }

    /** One turn after the other. After an error it connects again, later and later, and not all at once. */
    private void run(Turn turn) throws Exception {
        for (int errors = 0; answer != null || !stops();) {
            try {
                if (db == null) db = DriverManager.getConnection(url);
                turn.take();
                errors = 0;
            } catch (SQLException error) {
                log("turn", error);
                if (db != null) db.close();
                db = null;
                pause(100 << (errors = Math.min(errors + 1, 8)));
            }
        }
    }
    private void pause(long milliseconds) throws InterruptedException {
        long time = (long) (milliseconds * ThreadLocalRandom.current().nextDouble(0.5, 1));
        if (stops()) Thread.sleep(time); else stopping.await(time, TimeUnit.MILLISECONDS);
    }

    public void work(String queue, Effect effect) throws Exception {
        run(() -> {
            if (answer != null) giveAnswer();   // of before the connection was lost
            if (stops()) return;
            Call claim = new Call("SELECT * FROM stacksaga.claim_steps(?, ?, 1, ?)", queue, name, lease);
            List<Item> steps = query(db, claim);
            if (steps.isEmpty()) { waitFor(queue); return; }
            Item step = steps.get(0);
            String id = step.get("saga_id"), of = step.get("step"), under = step.get("lease");
            held = new Held(step, new Call("SELECT * FROM stacksaga.extend_step(?, ?, ?, ?)", id, of, under, lease));
            try {
                answer = new Call("SELECT stacksaga.complete_step(?, ?, ?, ?)", id, of, under, effect.apply(db, step));
            } catch (Exception error) {
                answer = failure("SELECT stacksaga.fail_step(?, ?, ?, ?, ?)", error, id, of, under);
            }
            giveAnswer();
        });
    }

    /** Under the same lease it may be repeated, so an answer whose reply was lost is given again. */
    private void giveAnswer() throws SQLException {
        try { query(db, answer); } catch (SQLException error) {
            if (!isOf(error, "SG", "22")) throw error;
            log("answer dropped", error);     // SG412: the step is somebody else's now
        }
        answer = null;
        held = null;
    }

    private void waitFor(String queue) throws SQLException {
        try (PreparedStatement call = db.prepareStatement("CALL stacksaga.wait_for_steps(?)")) {
            call.setString(1, queue);
            waiting = call;
            if (!stops()) call.execute();
        } catch (SQLException error) {
            if (!stops() || !isOf(error, "57014")) throw error;
        } finally { waiting = null; }
    }

    public void consume(String subscription, Effect effect) throws Exception {
        Call receive = new Call("SELECT * FROM stacksaga.receive_messages(?, ?, 100, ?)", subscription, name, lease);
        run(() -> {
            List<Item> messages = query(db, receive);
            if (messages.isEmpty()) { pause(1000); return; }
            String batch = messages.get(0).get("batch_id");
            held = new Held(new Item(), new Call("SELECT stacksaga.extend_batch(?, ?) AS lease_until", batch, lease));
            try { doBatch(batch, messages, effect); } finally { held = null; }
        });
    }

    /** After an error, such as SG412 for a batch that somebody else has by now, nothing was done. */
    private void doBatch(String batch, List<Item> messages, Effect effect) throws SQLException {
        List<Call> failed = new ArrayList<>();
        Set<String> keys = new HashSet<>();
        db.setAutoCommit(false);
        for (Item message : messages) {
            String key = message.get("key");
            if (key != null && keys.contains(key)) continue;   // later messages of a key wait for one that failed
            Savepoint savepoint = db.setSavepoint();
            try { effect.apply(db, message); } catch (Exception error) {
                db.rollback(savepoint);
                String id = message.get("message_id");
                failed.add(failure("SELECT stacksaga.fail_message(?, ?, ?, ?)", error, batch, id));
                keys.add(key);
            }
        }
        for (Call call : failed) query(db, call);
        query(db, new Call("SELECT stacksaga.ack_messages(?)", batch));
        db.commit();
        db.setAutoCommit(true);
    }

    private static List<Item> query(Connection db, Call call) throws SQLException {
        List<Item> items = new ArrayList<>();
        try (PreparedStatement statement = db.prepareStatement(call.sql)) {
            for (int i = 0; i < call.arguments.length; i++) statement.setString(i + 1, call.arguments[i]);
            ResultSet rows = statement.executeQuery();
            for (ResultSetMetaData columns = rows.getMetaData(); rows.next();) {
                items.add(new Item());
                for (int i = 1; i <= columns.getColumnCount(); i++) {
                    String value = rows.getString(i), last = columns.getColumnName(i);
                    if (value != null) items.get(items.size() - 1).put(last, value);
                }
            }
        }
        return items;
    }

    /** The call that reports it. An unknown error may not come again. */
    private static Call failure(String sql, Exception error, String... name) {
        log("effect", error);
        String[] all = Arrays.copyOf(name, name.length + 2);
        all[name.length] = String.valueOf(error.getMessage()).replace("\0", "");
        all[name.length + 1] = isOf(error, "SR504") ? "unknown" : isOf(error, "SG") ? "non_retryable" : "retryable";
        return new Call(sql, all);
    }
    private static void log(String what, Exception error) { System.err.println(what + ": " + error.getMessage()); }
    private static boolean isOf(Exception error, String... states) {
        String state = error instanceof SQLException sql ? String.valueOf(sql.getSQLState()) : "";
        return Arrays.stream(states).anyMatch(state::startsWith);
    }
}
