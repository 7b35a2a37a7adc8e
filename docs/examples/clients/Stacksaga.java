// A worker of a queue and a consumer of an outbox's subscription, with JDBC: copy it, and change it. Java 17.
//   new Stacksaga(url, 30).work(queue, effect)             calls effect with each step; it returns the output, as JSON
//   new Stacksaga(url, 30).consume(subscription, effect)   the same in the transaction that acknowledges the message
//
// Both return after SIGTERM. By the SQLSTATE of an SQLException the effect says what this attempt did: class SG: nothing,
// and no other will; class SR but SR504: nothing, and SR425 gives the step back, so that the attempt is not counted. Any
// other error is unknown: it may have had its effect. One that Pauses says when the next attempt comes.
import java.sql.*;
import java.util.*;
import java.util.concurrent.*;
public class Stacksaga {
    /** A row, as texts. While it is worked on, "lost" or "cancel_requested" may become "t": then end soon. */
    public static class Item extends ConcurrentHashMap<String, String> { private volatile Call extension; }
    public interface Pauses { String retryAfter(); }   // of an exception: the pause before the next attempt
    public interface Effect { String apply(Connection db, Item item) throws Exception; }
    private interface Turn { void take() throws Exception; }
    private record Call(String sql, String... arguments) {}
    private static final String FAIL = "SELECT stacksaga.fail_step(?, ?, ?, ?, ?, ?)";
    private static final String RELEASE = "SELECT stacksaga.release_step(?, ?, ?, coalesce(?::interval, '10 s'), ?)";
    private final String url, lease, name = "java-" + ProcessHandle.current().pid();
    private final CountDownLatch stopping = new CountDownLatch(1);
    private Connection db; private Call answer;   // to a step, until it has arrived
    private volatile Item held;       // what the heartbeat extends
    private volatile Statement wait;

    public Stacksaga(String url, long seconds) {
        // Strings as literals of any type, and no prepared statements, for PgBouncer in transaction mode.
        this.url = url + (url.contains("?") ? "&" : "?")
            + "stringtype=unspecified&prepareThreshold=0&connectTimeout=10&tcpKeepAlive=true";
        lease = seconds + " seconds";
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(main)));
        new Timer(true).schedule(new TimerTask() { public void run() { beat(); } }, seconds * 333, seconds * 333);
    }
    /** Ends after what is at hand. A cancel that arrives before its statement does nothing: again. */
    private void stop(Thread main) {
        if (!main.isAlive()) return;   // an error ended it: the status says so
        stopping.countDown();
        for (Statement call = wait; main.isAlive(); call = wait)
            try { if (call != null) call.cancel(); main.join(100); } catch (Exception error) { log("stop", error); }
        Runtime.getRuntime().halt(0); // otherwise it would be 143
    }
    private boolean goesOn() { return answer != null || stopping.getCount() > 0; }
    /** The heartbeat, in a session of its own. When it fails the next one tries again: a lease lasts for three. */
    private void beat() {
        Item item = held;
        if (item == null || item.extension == null || item.containsKey("lost")) return;
        try (var other = DriverManager.getConnection(url)) {
            item.putAll(query(other, item.extension).get(0));
        } catch (SQLException error) {
            if (isOf(error, "SG")) item.put("lost", "t");   // somebody else's by now
            log("heartbeat", error);
        }
    }
    /** One turn after the other. After an error it connects again, later and later, and not all at once. */
    private void run(Turn turn) throws Exception {
        for (int errors = 0; goesOn();) {
            try {
                if (db == null) db = DriverManager.getConnection(url);
                turn.take();
                errors = 0;
            } catch (SQLException error) {
                if (goesOn()) log("turn", error);   // else the wait was cancelled
                if (db != null) db.close();   // it may lead to a standby by now
                db = null;
                errors = Math.min(errors + 1, 6);
            }
            if (answer == null) held = null;
            if (errors > 0) pause(100 << errors);
        }
    }
    private void pause(long milliseconds) throws InterruptedException {
        long time = ThreadLocalRandom.current().nextLong(milliseconds / 2, milliseconds);
        if (stopping.await(time, TimeUnit.MILLISECONDS)) Thread.sleep(100);
    }
    public void work(String queue, Effect effect) throws Exception {
        run(() -> {
            if (answer == null) {   // else one of before the connection was lost
                var steps = query(db, new Call("SELECT * FROM stacksaga.claim_steps(?, ?, 1, ?)", queue, name, lease));
                if (steps.isEmpty()) { query(db, new Call("CALL stacksaga.wait_for_steps(?)", queue)); return; }
                Item step = steps.get(0);
                String id = step.get("saga_id"), of = step.get("step"), under = step.get("lease");
                step.extension = new Call("SELECT * FROM stacksaga.extend_step(?, ?, ?, ?)", id, of, under, lease);
                if (stopping.getCount() == 0) answer = new Call(RELEASE, id, of, under, "0", "the service stops");   // not begun
                else try {
                    String output = effect.apply(db, held = step);
                    answer = new Call("SELECT stacksaga.complete_step(?, ?, ?, ?)", id, of, under, output);
                } catch (Exception error) {
                    answer = isOf(error, "SR425") ? new Call(RELEASE, id, of, under, pauseOf(error), textOf(error))
                        : new Call(FAIL, id, of, under, textOf(error), classOf(error), pauseOf(error));
                }
            }
            String[] of = answer.arguments;
            try { query(db, answer); answer = null; } catch (SQLException error) {   // the same answer twice is one
                if (!isOf(error, "SG|22|54")) throw error;
                log("answer refused", error);   // somebody else's by now, or answered; else the output, after its effect
                answer = answer.sql.equals(FAIL) || isOf(error, "SG4(04|09|12)") ? null
                    : new Call(FAIL, of[0], of[1], of[2], textOf(error), "unknown", null);
            }
        });
    }
    public void consume(String subscription, Effect effect) throws Exception {
        Call receive = new Call("SELECT * FROM stacksaga.receive_messages(?, ?, 100, ?)", subscription, name, lease);
        run(() -> {
            List<Item> messages = query(db, receive);
            if (messages.isEmpty()) { query(db, new Call("CALL stacksaga.wait_for_messages(?, consumer => ?)", subscription, name)); return; }
            String batch = messages.get(0).get("batch_id");
            (held = messages.get(0)).extension = new Call("SELECT stacksaga.extend_batch(?, ?)", batch, lease);
            db.setAutoCommit(false);
            Map<Object, Call> failed = new HashMap<>();
            for (Item message : messages) {
                Object key = message.containsKey("key") ? message.get("key") : message;
                if (failed.containsKey(key)) continue;   // later messages of a key wait for the one that failed
                Savepoint savepoint = db.setSavepoint();
                try { effect.apply(db, message); } catch (Exception error) {
                    db.rollback(savepoint);
                    failed.put(key, new Call("SELECT stacksaga.fail_message(?, ?, ?, ?, ?)",
                        batch, message.get("message_id"), textOf(error), classOf(error), pauseOf(error)));
                }
            }
            for (Call report : failed.values()) query(db, report);
            query(db, new Call("SELECT stacksaga.ack_messages(?)", batch));
            db.setAutoCommit(true);   // commits. After an error, such as SG412 for a lost batch, nothing was done
        });
    }
    private List<Item> query(Connection db, Call call) throws SQLException {
        List<Item> items = new ArrayList<>();
        try (PreparedStatement statement = db.prepareStatement(call.sql)) {
            for (int i = 0; i < call.arguments.length; i++) statement.setString(i + 1, call.arguments[i]);
            if (call.sql.startsWith("CALL")) wait = statement;   // which stop() cancels
            statement.execute();
            for (ResultSet rows = statement.getResultSet(); rows != null && rows.next();) {
                Item item = new Item();
                for (int i = rows.getMetaData().getColumnCount(); i > 0; i--)
                    if (rows.getString(i) != null) item.put(rows.getMetaData().getColumnName(i), rows.getString(i));
                items.add(item);
            }
        } finally { if (call.sql.startsWith("CALL")) wait = null; }
        return items;
    }
    private static String pauseOf(Exception error) { return error instanceof Pauses p ? p.retryAfter() : null; }
    private static String textOf(Exception why) { return String.format("%.1000s", why.getMessage()).replace("\0", ""); }
    private static String classOf(Exception error) {   // what nobody has said may have had its effect
        return isOf(error, "SG") ? "non_retryable" : isOf(error, "SR(?!504)") ? "retryable" : "unknown";
    }
    private static void log(String what, Exception error) { System.err.println(what + ": " + error.getMessage()); }
    private static boolean isOf(Exception error, String codes) {
        return error instanceof SQLException sql && String.valueOf(sql.getSQLState()).matches("(" + codes + ").*");
    }
}
