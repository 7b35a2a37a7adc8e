#include "live.hpp"

#include "../random.hpp"
#include "postgres.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>

namespace stacksaga::property::outbox {

namespace {

using namespace std::chrono_literals;

constexpr const char *database = "property_outbox_live";
constexpr int publishes_per_kill = 60;
constexpr auto patience = 120s;

constexpr const char *worker_pid =
    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stacksaga worker'"
    "   AND datname = 'property_outbox_live'";
// Every message has to be handled once by each subscription that wants it, unless it was discarded.
constexpr const char *not_once = R"(
    SELECT format('subscription %s: message %s was handled %s times', subscription, number, times)
      FROM (SELECT s.subscription, p.number,
                   (SELECT count(*) FROM property.handled h
                     WHERE (h.subscription, h.number) = (s.subscription, p.number)) AS times
              FROM stacksaga.subscription s, property.published p) AS counted
     WHERE times <> 1 ORDER BY 1 LIMIT 5)";
// One that was published after another of its key, and is not to be delayed, is handled after it.
constexpr const char *not_in_order = R"(
    SELECT format('subscription %s: message %s was handled before %s of its key', a.subscription,
                  a.number, b.number)
      FROM property.handled a JOIN property.published pa USING (number)
      JOIN property.handled b USING (subscription)
      JOIN property.published pb ON pb.number = b.number
      JOIN stacksaga.subscription s USING (subscription)
     WHERE s.stop_on_first_failure AND pa.key = pb.key AND b.number < a.number AND b.at > a.at
       AND NOT pb.is_delayed ORDER BY 1 LIMIT 5)";
constexpr const char *left = R"(
    SELECT coalesce(sum(lag_messages), 0) + (SELECT count(*) FROM stacksaga.dead_messages)
      FROM stacksaga.subscriptions)";

class Live {
public:
    Live(uint64_t seed, const std::string &script)
        : random_(seed, {~uint64_t{0}}), session_(fmt::format("dbname={}", database)) {
        support::Session("").run(fmt::format("CREATE DATABASE {}", database).c_str());
        run_sql(fmt::format("ALTER DATABASE {} SET synchronous_commit = on", database));
        session_.disconnect();
        run_sql("CREATE EXTENSION stacksaga");
        session_.run_script(script);
        run_sql("ALTER TABLE property.published ADD key text, ADD is_delayed boolean");
        for (const char *handler : {"single", "batch"})
            for (bool stops : {true, false})
                subscribe(fmt::format("{}_{}", handler, stops ? "stops" : "goes_on"), handler,
                          stops);
        run_sql("SELECT stacksaga.worker_ensure()");
    }

    std::string run(int kills) {
        for (int i = 0; i < kills; ++i) {
            for (int n = 0; n < publishes_per_kill; ++n)
                publish();
            kill_worker();
        }
        settle();
        std::string report;
        for (const char *query : {not_once, not_in_order}) {
            const support::Rows rows = run_sql(query);
            for (int i = 0; i < rows.size(); ++i)
                report += rows.text(i, 0) + "\n";
        }
        return report;
    }

private:
    /// Again and again while the server restarts. A statement that broke off may have taken effect;
    /// all statements here may run twice.
    support::Rows run_sql(const std::string &sql) {
        const auto end = std::chrono::steady_clock::now() + patience;
        for (;;) {
            try {
                return session_.run(sql.c_str());
            } catch (const support::Disconnected &) {
                if (std::chrono::steady_clock::now() > end)
                    throw;
                std::this_thread::sleep_for(50ms);
            }
        }
    }

    void subscribe(const std::string &name, const std::string &handler, bool stops) {
        run_sql(fmt::format("CALL property.make_handlers('{}')", name));
        run_sql(fmt::format(
            "SELECT stacksaga.create_subscription('{0}', 'live', 'property.{0}_{1}(stacksaga.message{2})',"
            " {3}, stacksaga.retry_policy(6, '5 ms', 2, '50 ms'))",
            name, handler, handler == "batch" ? "[]" : "", stops));
    }

    void publish() {
        const int number = ++last_;
        const bool is_delayed = random_.chance(25);
        if (random_.chance(15))
            run_sql(
                fmt::format("INSERT INTO property.failure SELECT subscription, {}, {}, 'SR503', "
                            "'handler' FROM stacksaga.subscription ON CONFLICT DO NOTHING",
                            number, random_.one_of({1, 2, 9})));
        run_sql(fmt::format(
            "WITH published AS (INSERT INTO property.published SELECT {0}, 'k{1}', {2}"
            "     WHERE NOT EXISTS (SELECT FROM property.published WHERE number = {0}) RETURNING key)"
            " SELECT stacksaga.publish('live', '{{\"n\": {0}}}', key, deliver_at => {3}) FROM published",
            number, random_.below(6), is_delayed,
            is_delayed ? fmt::format("now() + interval '{} ms'", random_.below(300)) : "NULL"));
    }

    void kill_worker() {
        run_sql("SELECT stacksaga.worker_ensure()");
        support::Rows worker = run_sql(worker_pid);
        for (const auto end = std::chrono::steady_clock::now() + patience; worker.empty();
             worker = run_sql(worker_pid)) {
            if (std::chrono::steady_clock::now() > end)
                throw std::runtime_error("there is no worker");
            std::this_thread::sleep_for(10ms);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(random_.below(60)));
        kill(static_cast<pid_t>(worker.number(0, 0)), SIGKILL);
    }

    /// No handler fails any more; dead messages are redriven.
    void settle() {
        run_sql("DELETE FROM property.failure");
        run_sql("SELECT stacksaga.worker_ensure()");
        const auto end = std::chrono::steady_clock::now() + patience;
        while (run_sql(left).number(0, 0) != 0) {
            if (std::chrono::steady_clock::now() > end)
                throw std::runtime_error("the worker does not come to an end");
            run_sql("SELECT stacksaga.redrive_message(subscription, message_id)"
                    " FROM stacksaga.dead_messages");
            std::this_thread::sleep_for(50ms);
        }
    }

    Random random_;
    support::Session session_;
    int last_ = 0;
};

} // namespace

std::string run_live(uint64_t seed, const std::string &script, int kills) {
    return Live(seed, script).run(kills);
}

} // namespace stacksaga::property::outbox
