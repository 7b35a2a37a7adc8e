#include "episode.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace stacksaga::property::outbox {

namespace {

constexpr int operations_min = 40, operations_max = 160;
constexpr int drain_rounds = 60;
constexpr const char *consumers[] = {"consumer", "shared", "shared"}; // of each process
constexpr const char *codes[] = {"SR503", "SR503", "SG424"};          // retryable, and not

FailureClass class_of(std::string_view code) {
    return code == "SG424" ? FailureClass::non_retryable : FailureClass::retryable;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (;;) {
        const size_t end = text.find(separator);
        parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

const char *name_of(FailureClass failure_class) {
    switch (failure_class) {
    case FailureClass::retryable:
        return "retryable";
    case FailureClass::non_retryable:
        return "non_retryable";
    case FailureClass::unknown:
        return "unknown";
    }
    return "?";
}

/// As an argument of create_subscription() or alter_subscription().
std::string handler_argument(const Settings &s) {
    if (s.is_service())
        return "NULL";
    return fmt::format("'property.{}_{}(stacksaga.message{})'", s.name, s.handler,
                       s.handler == "batch" ? "[]" : "");
}
std::string fallback_argument(const Settings &s) {
    return s.has_fallback ? fmt::format("'property.{}_fallback(stacksaga.message)'", s.name)
                          : "NULL";
}
std::string policy_argument(const Settings &s) {
    return fmt::format("stacksaga.retry_policy({}, '{} min', {}, '{} min', 0)", s.max_attempts,
                       initial_interval, multiplier, max_interval);
}

} // namespace

Sessions::Sessions(const std::string &conninfo)
    : main(conninfo, "-c statement_timeout=1min -c client_min_messages=notice"),
      publishers{support::Session(conninfo), support::Session(conninfo)} {
    main.on_notice([this](std::string_view notice) { heard.emplace_back(notice); });
}

Episode::Episode(Sessions &sessions, uint64_t seed, int number)
    : sessions_(sessions), number_(number), random_(seed, {static_cast<uint64_t>(number)}) {
    for (support::Session &session : sessions.publishers)
        publishers_.push_back({.session = &session});
    // Which partitions a batch without room for all takes from is left to chance.
    has_one_partition_ = random_.chance(75);
}

void Episode::note(const std::string &text) {
    trace_ += fmt::format("{:4} minute {:3}  {}\n", operation_, now_, text);
}

std::optional<std::string> Episode::run() {
    try {
        set_up();
        const int operations = random_.between(operations_min, operations_max);
        while (operation_ < operations)
            operate();
        drain();
        check_end();
        tear_down();
        return std::nullopt;
    } catch (const std::exception &error) {
        const std::string report = fmt::format("{}\n{}", error.what(), tables());
        sessions_.main.disconnect();
        for (Publisher &p : publishers_)
            p.session->disconnect();
        return report;
    }
}

std::string Episode::tables() {
    try {
        const support::Rows rows = run_sql(fmt::format(R"(
            SELECT concat_ws(' ', subscription, 'retry:', 'message', payload -> 'n', 'partition',
                       partition, 'at', (tick, number), state, 'attempt', attempt, 'due at minute',
                       CASE WHEN isfinite(due_at) THEN ceil(extract(epoch FROM due_at - now()) / 60)::text
                            ELSE due_at::text END,
                       'batch', batch_id, 'failed in', failed_in)
              FROM stacksaga.message_retry JOIN stacksaga.subscription USING (subscription_id)
             WHERE subscription LIKE 'e{0}\_%'
             UNION ALL
            SELECT concat_ws(' ', subscription, 'position:', 'partition', partition, 'at', (tick, number),
                       'batch', batch_id, 'to', (batch_tick, batch_number), 'size', batch_size,
                       'of', batch_total, 'room', room)
              FROM stacksaga.subscription JOIN (
                       SELECT DISTINCT ON (subscription_id, partition) *
                         FROM stacksaga.subscription_position
                        ORDER BY subscription_id, partition, version DESC) AS p
                   USING (subscription_id)
             WHERE subscription LIKE 'e{0}\_%' AND version > 1
             UNION ALL
            SELECT concat_ws(' ', 'log: message', payload -> 'n', 'stripe', stripe, 'number',
                       number)
              FROM stacksaga.outbox_message WHERE topic LIKE 'e{0}.%')",
                                                       number_));
        std::string text;
        for (int i = 0; i < rows.size(); ++i)
            text += rows.text(i, 0) + "\n";
        return text;
    } catch (const std::exception &error) {
        return fmt::format("{}\n", error.what());
    }
}

void Episode::set_up() {
    run_sql("SET stacksaga.clock_offset = '0'");
    const int partition = random_.below(256);
    const int count = random_.between(1, 4);
    for (int i = 0; i < count; ++i)
        keys_.push_back(run_sql(fmt::format("SELECT property.key_in({}, {})",
                                            has_one_partition_ ? partition : random_.below(256), i))
                            .text(0, 0));
    const int subscriptions = random_.between(1, 3);
    for (int i = 0; i < subscriptions; ++i)
        create_subscription();
}

void Episode::create_subscription() {
    ++operation_;
    const auto topics = {"a.x", "a.*", "*", "b"};
    Settings s{.name = fmt::format("e{}_{}", number_, models_.size()),
               .topic = fmt::format("e{}.{}", number_, random_.one_of(topics)),
               .handler = random_.one_of({"service", "service", "single", "batch"}),
               .stops = random_.chance(70),
               .has_fallback = random_.chance(25),
               .max_attempts = random_.one_of({0, 1, 2, 4, 10}),
               .created_at = operation_};
    run_sql(fmt::format("CALL property.make_handlers('{}')", s.name));
    const std::string sql =
        fmt::format("SELECT stacksaga.create_subscription('{}', '{}', {}, {}, {}, fallback => {}, "
                    "partitions => {})",
                    s.name, s.topic, handler_argument(s), s.stops, policy_argument(s),
                    fallback_argument(s), random_.one_of({1, 2, 16, 64, 256}));
    note(sql);
    run_sql(sql);
    models_.push_back(std::make_unique<Model>(s, log_));
}

void Episode::operate() {
    ++operation_;
    const int dice = random_.below(100);
    const Batch *batch = dice >= 50 && dice < 76 ? any_batch() : nullptr;
    if (dice < 26)
        publish();
    else if (dice < 32)
        end_transaction();
    else if (dice < 41)
        advance(random_.one_of({1, 1, 2, 2, 5, 5, 40}));
    else if (dice < 50 || (batch == nullptr && dice < 76)) {
        if (Model *model = any_service()) {
            const int room = random_.one_of({1, 2, 3, 5, 100, 100});
            const Process process = random_.one_of(
                {Process::own_name, Process::first_of_name, Process::second_of_name});
            receive(*model, process, room, random_.one_of({1, 3, 10}));
        }
    } else if (dice < 61)
        fail(*batch);
    else if (dice < 64)
        extend(*batch);
    else if (dice < 68)
        release(*batch);
    else if (dice < 76)
        acknowledge(*batch);
    else if (dice < 86)
        run_pending(random_.one_of({1, 2, 5, 1000}), random_.chance(15));
    else if (dice < 91)
        choose_failure();
    else if (dice < 95)
        redrive_or_discard();
    else if (dice < 97)
        alter();
    else if (dice < 98 && any_service() != nullptr)
        receive_and_roll_back(*any_service());
    else if (dice < 99 && models_.size() < 4)
        create_subscription();
    else
        maintain();
}

Model *Episode::any_service() {
    std::vector<Model *> services;
    for (const auto &model : models_)
        if (model->settings().is_service())
            services.push_back(model.get());
    return services.empty()
               ? nullptr
               : services[static_cast<size_t>(random_.below(static_cast<int>(services.size())))];
}

/// Mostly the last one.
const Episode::Batch *Episode::any_batch() {
    if (batches_.empty())
        return nullptr;
    const int count = static_cast<int>(batches_.size());
    return &batches_[static_cast<size_t>(random_.chance(60) ? count - 1 : random_.below(count))];
}

std::string Episode::id_of(int number) const {
    return ids_.at(number);
}

void Episode::publish() {
    Publisher *publisher = nullptr;
    if (random_.chance(30)) {
        publisher = &publishers_[static_cast<size_t>(random_.below(2))];
        if (!publisher->is_open) {
            publisher->session->run("BEGIN");
            publisher->transaction = operation_;
        }
        publisher->is_open = true;
    }
    const int count = random_.one_of({1, 1, 2, 3, 6});
    std::vector<int> numbers;
    for (int i = 0; i < count; ++i) {
        ++operation_;
        const int number = static_cast<int>(log_.size());
        Published p{.number = number,
                    .topic =
                        fmt::format("e{}.{}", number_, random_.one_of({"a.x", "a.x", "a.y", "b"})),
                    .key = random_.chance(85) ? keys_[random_.next() % keys_.size()] : "",
                    .is_delayed = random_.chance(35),
                    .deliver_at = 0,
                    .published_at = operation_,
                    .transaction = publisher != nullptr ? publisher->transaction : -1};
        p.deliver_at = p.is_delayed ? now_ + random_.one_of({0, 1, 1, 2, 3, 8}) : 0;
        const std::string sql =
            fmt::format("SELECT stacksaga.publish('{}', '{{\"n\": {}}}', {}, deliver_at => {})",
                        p.topic, number, p.key.empty() ? "NULL" : "'" + p.key + "'",
                        p.is_delayed ? fmt::format("stacksaga.clock_now() + interval '{} min'",
                                                   p.deliver_at - now_)
                                     : "NULL");
        note((publisher != nullptr ? "in a transaction: " : "") + sql);
        support::Session &session = publisher != nullptr ? *publisher->session : sessions_.main;
        session.run(fmt::format("SET stacksaga.clock_offset = '{} min'", now_).c_str());
        ids_[number] = session.run(sql.c_str()).text(0, 0);
        log_.emplace(number, p);
        if (random_.chance(4)) {
            killers_.insert(number);
            note(fmt::format("message {} ends its consumers", number));
        }
        numbers.push_back(number);
        if (publisher == nullptr)
            commit({number});
    }
    if (publisher != nullptr)
        publisher->published.insert(publisher->published.end(), numbers.begin(), numbers.end());
}

void Episode::end_transaction() {
    Publisher &publisher = publishers_[static_cast<size_t>(random_.below(2))];
    if (!publisher.is_open)
        return;
    const bool commits = random_.chance(80);
    note(commits ? "COMMIT of the transaction" : "ROLLBACK of the transaction");
    publisher.session->run(commits ? "COMMIT" : "ROLLBACK");
    if (commits)
        commit(publisher.published);
    publisher.is_open = false;
    publisher.published.clear();
}

/// Those of one transaction, or of one operation, are in their order.
void Episode::commit(const std::vector<int> &numbers) {
    for (int number : numbers)
        log_.at(number).committed = operation_;
}

void Episode::advance(int minutes) {
    now_ += minutes;
    note(fmt::format("{} minutes later", minutes));
    run_sql(fmt::format("SET stacksaga.clock_offset = '{} min'", now_));
}

bool Episode::receive(Model &model, Process process, int room, int lease) {
    const char *consumer = consumers[static_cast<size_t>(process)];
    const support::Rows rows =
        run_sql(fmt::format("SELECT batch_id, (payload -> 'n')::integer, attempt, message_id"
                            "  FROM stacksaga.receive_messages('{}', '{}', {}, '{} min')",
                            model.settings().name, consumer, room, lease));
    Batch batch{.model = &model,
                .id = rows.empty() ? 0 : rows.number(0, 0),
                .process = process,
                .messages = {}};
    std::vector<Given> given;
    std::string list;
    for (int i = 0; i < rows.size(); ++i) {
        given.push_back({.number = static_cast<int>(rows.number(i, 1)),
                         .attempt = static_cast<int>(rows.number(i, 2))});
        batch.messages.emplace_back(given.back().number, rows.text(i, 3));
        list += fmt::format(" {}:{}", given.back().number, given.back().attempt);
    }
    note(fmt::format("receive_messages('{}', process {} '{}', room {}, {} min): batch {} of{}",
                     model.settings().name, static_cast<int>(process), consumer, room, lease,
                     batch.id, list));
    if (rows.size() > room)
        throw Disagreement("a batch has more messages than it has room for");
    if (!given.empty()) {
        model.received(batch.id, given, consumer, now_, lease);
        const auto kills = [&](const Given &g) { return killers_.contains(g.number); };
        batches_.push_back(std::move(batch));
        if (std::ranges::any_of(given, kills))
            crash(process);
    }
    compare_dead(model);
    return !given.empty();
}

/// The last batch has ended its process, which answers for none of those that it held.
void Episode::crash(Process process) {
    const Batch last = batches_.back();
    for (const Batch &batch : batches_)
        if (batch.process == process && batch.model == last.model && batch.id != last.id)
            last.model->lost_together(batch.id, now_);
    const auto lost =
        std::erase_if(batches_, [&](const Batch &batch) { return batch.process == process; });
    note(fmt::format("  its process has crashed with {} batches", lost));
}

void Episode::receive_and_roll_back(Model &model) {
    note(fmt::format("receive_messages('{}'), rolled back", model.settings().name));
    run_sql("BEGIN");
    run_sql(fmt::format("SELECT stacksaga.ack_messages(max(batch_id))"
                        "  FROM stacksaga.receive_messages('{}', 'consumer')"
                        " HAVING max(batch_id) IS NOT NULL",
                        model.settings().name));
    run_sql("ROLLBACK");
}

/// False: refused, since the lease is lost.
bool Episode::is_accepted(const std::string &sql) {
    try {
        run_sql(sql);
        return true;
    } catch (const support::Refused &refused) {
        if (refused.sqlstate() != "SG412" && refused.sqlstate() != "SG404")
            throw;
        return false;
    }
}

void Episode::fail(const Batch &batch) {
    const auto &[number, id] = batch.messages[random_.next() % batch.messages.size()];
    const FailureClass failure_class =
        random_.one_of({FailureClass::retryable, FailureClass::retryable, FailureClass::retryable,
                        FailureClass::non_retryable, FailureClass::unknown});
    const int retry_after = random_.chance(30) ? random_.one_of({0, 1, 4}) : -1;
    const std::string sql = fmt::format(
        "SELECT stacksaga.fail_message({}, '{}', 'failed', '{}', {})", batch.id, id,
        name_of(failure_class), retry_after >= 0 ? fmt::format("'{} min'", retry_after) : "NULL");
    const bool accepted = is_accepted(sql);
    note(fmt::format("fail_message(batch {}, message {}, {}, {}){}", batch.id, number,
                     name_of(failure_class), retry_after, accepted ? "" : ": refused"));
    batch.model->failed(batch.id, number, failure_class, retry_after, accepted, now_);
    compare_dead(*batch.model);
}

void Episode::extend(const Batch &batch) {
    const int minutes = random_.one_of({1, 5});
    const bool accepted =
        is_accepted(fmt::format("SELECT stacksaga.extend_batch({}, '{} min')", batch.id, minutes));
    note(fmt::format("extend_batch({}, {} min){}", batch.id, minutes, accepted ? "" : ": refused"));
    batch.model->extended(batch.id, minutes, accepted, now_);
}

void Episode::release(const Batch &batch) {
    const int minutes = random_.one_of({0, 0, 1, 4});
    const bool accepted = is_accepted(
        fmt::format("SELECT stacksaga.release_batch({}, '{} min', 'not now')", batch.id, minutes));
    note(
        fmt::format("release_batch({}, {} min){}", batch.id, minutes, accepted ? "" : ": refused"));
    batch.model->released(batch.id, minutes, accepted, now_);
}

void Episode::acknowledge(const Batch &batch) {
    long long count = -1;
    try {
        count = run_sql(fmt::format("SELECT stacksaga.ack_messages({})", batch.id)).number(0, 0);
    } catch (const support::Refused &refused) {
        if (refused.sqlstate() != "SG412" && refused.sqlstate() != "SG404")
            throw;
    }
    note(fmt::format("ack_messages({}): {}", batch.id,
                     count < 0 ? "refused" : fmt::format("{}", count)));
    batch.model->acknowledged(batch.id, count >= 0, count, now_);
}

void Episode::run_pending(int limit, bool rolls_back) {
    sessions_.heard.clear();
    note(fmt::format("run_pending({}){}", limit, rolls_back ? ", rolled back" : ""));
    if (rolls_back) {
        run_sql("BEGIN");
        run_sql(fmt::format("SELECT stacksaga.run_pending({})", limit));
        run_sql("ROLLBACK");
        return;
    }
    run_sql(fmt::format("SELECT stacksaga.run_pending({})", limit));
    for (const auto &model : models_)
        model->maintained();
    const std::vector<std::string> notices = std::move(sessions_.heard);
    sessions_.heard.clear();
    for (const std::string &notice : notices)
        heard(notice);
    compare_all_dead();
}

// subscription|kind|code|number:attempt,...
void Episode::heard(const std::string &notice) {
    note("  called: " + notice);
    const std::vector<std::string> fields = split(notice, '|');
    if (fields.size() != 4)
        throw std::runtime_error("unexpected notice: " + notice);
    std::vector<Given> given;
    for (const std::string &one : split(fields[3], ',')) {
        const std::vector<std::string> parts = split(one, ':');
        given.push_back({.number = std::stoi(parts.at(0)), .attempt = std::stoi(parts.at(1))});
    }
    for (const auto &model : models_)
        if (model->settings().name == fields[0])
            model->handled(given, fields[1] == "fallback", fields[2].empty(), class_of(fields[2]),
                           now_);
}

void Episode::choose_failure() {
    if (log_.empty())
        return;
    const Settings &s = models_[random_.next() % models_.size()]->settings();
    const int number = random_.chance(70)
                           ? static_cast<int>(log_.size()) - 1 -
                                 random_.below(std::min(5, static_cast<int>(log_.size())))
                           : random_.below(static_cast<int>(log_.size()));
    const int attempts = random_.one_of({1, 1, 2, 3, 100});
    const char *code = codes[random_.below(3)];
    const char *kind = random_.one_of({"handler", "handler", "fallback"});
    note(fmt::format("the {} of {} fails {} times with {} for message {}", kind, s.name, attempts,
                     code, number));
    run_sql(fmt::format("INSERT INTO property.failure VALUES ('{}', {}, {}, '{}', '{}')"
                        " ON CONFLICT (subscription, number, kind) DO NOTHING",
                        s.name, number, attempts, code, kind));
}

void Episode::redrive_or_discard() {
    Model &model = *models_[random_.next() % models_.size()];
    const std::vector<int> dead = model.dead();
    if (dead.empty())
        return;
    const int number = dead[random_.next() % dead.size()];
    if (random_.chance(30)) {
        redrive_oldest(model);
    } else if (random_.chance(60)) {
        redrive(model, number);
    } else {
        note(fmt::format("discard_message('{}', message {})", model.settings().name, number));
        run_sql(fmt::format("SELECT stacksaga.discard_message('{}', '{}', 'by order')",
                            model.settings().name, id_of(number)));
        model.discarded(number);
    }
    compare_dead(model);
}

void Episode::redrive(Model &model, int number) {
    note(fmt::format("redrive_message('{}', message {})", model.settings().name, number));
    run_sql(fmt::format("SELECT stacksaga.redrive_message('{}', '{}')", model.settings().name,
                        id_of(number)));
    model.redriven(number, now_);
    const Published &p = log_.at(number);
    if (!model.settings().stops || p.key.empty())
        return;
    // What died behind it in its key comes again with it.
    const std::set<int> left = dead_numbers(model);
    for (int other : model.dead()) {
        const Published &q = log_.at(other);
        const bool is_redriven = !left.contains(other);
        if (q.key != p.key)
            continue;
        if (is_redriven ? q.is_before(p) : p.is_before(q))
            throw Disagreement(fmt::format("{} was{} redriven with message {}",
                                           model.describe(other), is_redriven ? "" : " not",
                                           number));
        if (is_redriven)
            model.redriven(other, now_);
    }
}

/// Many at once are each redriven as if alone; those that wait for no key, each in its part of the
/// spread.
void Episode::redrive_oldest(Model &model) {
    const Settings &s = model.settings();
    const int room = random_.one_of({1, 2, 100});
    const int spread = random_.one_of({0, 0, 3, 10});
    const std::string topic = random_.chance(70) ? "" : log_.at(model.dead().front()).topic;
    const std::string call =
        fmt::format("stacksaga.redrive_messages('{}', {}, {}, 'by order', %, '{} min')", s.name,
                    topic.empty() ? "NULL" : "'" + topic + "'", room, spread);
    const auto run = [&](const char *dry_run) {
        std::string sql = "SELECT message_id FROM " + call;
        sql.replace(sql.find('%'), 1, dry_run);
        note(sql);
        const support::Rows rows = run_sql(sql);
        std::vector<int> numbers;
        for (int i = 0; i < rows.size(); ++i)
            numbers.push_back(std::ranges::find(ids_, rows.text(i, 0), [](const auto &entry) {
                                  return entry.second;
                              })->first);
        return numbers;
    };
    const std::vector<int> proposed = run("true");
    compare_dead(model);
    const std::vector<int> redriven = run("false");
    const auto wanted = std::ranges::count_if(
        model.dead(), [&](int number) { return topic.empty() || log_.at(number).topic == topic; });
    if (redriven != proposed || std::ssize(redriven) != std::min<std::ptrdiff_t>(room, wanted))
        throw Disagreement(fmt::format("{} redrove {} messages of {}, and proposed {}", call,
                                       redriven.size(), wanted, proposed.size()));
    for (size_t i = 0; i < redriven.size(); ++i) {
        const bool may_be_held = s.stops && !log_.at(redriven[i]).key.empty();
        const int delay = spread * static_cast<int>(i) / static_cast<int>(redriven.size());
        model.redriven(redriven[i], may_be_held ? now_ : now_ + delay);
    }
}

void Episode::alter() {
    Model &model = *models_[random_.next() % models_.size()];
    Settings s = model.settings();
    switch (random_.below(4)) {
    case 0:
        s.stops = !s.stops;
        break;
    case 1:
        s.max_attempts = random_.one_of({0, 1, 2, 4});
        break;
    case 2:
        s.has_fallback = true;
        break;
    default:
        if (!s.is_service() || random_.chance(30))
            s.handler = random_.one_of({"single", "batch"});
    }
    const bool accepted = [&] {
        try {
            run_sql(fmt::format("SELECT stacksaga.alter_subscription('{}', {}, {}, {}, {})", s.name,
                                handler_argument(s), s.stops, policy_argument(s),
                                fallback_argument(s)));
            return true;
        } catch (const support::Refused &refused) {
            if (refused.sqlstate() != "SG409" || !model.holds_lease(now_))
                throw;
            return false;
        }
    }();
    note(fmt::format(
        "alter_subscription('{}', handler {}, stops {}, max_attempts {}, fallback {}){}", s.name,
        s.handler, s.stops, s.max_attempts, s.has_fallback, accepted ? "" : ": refused"));
    if (accepted)
        model.altered(s, now_);
}

void Episode::maintain() {
    note("maintain_outbox(true)");
    run_sql("SELECT stacksaga.maintain_outbox(true)");
    for (const auto &model : models_)
        model->maintained();
    compare_all_dead();
}

std::set<int> Episode::dead_numbers(const Model &model) {
    const support::Rows rows =
        run_sql(fmt::format("SELECT payload -> 'n' FROM stacksaga.dead_messages"
                            " WHERE subscription = '{}'",
                            model.settings().name));
    std::set<int> numbers;
    for (int i = 0; i < rows.size(); ++i)
        numbers.insert(static_cast<int>(rows.number(i, 0)));
    return numbers;
}

void Episode::compare_dead(Model &model) {
    model.are_dead(dead_numbers(model));
}

void Episode::compare_all_dead() {
    for (const auto &model : models_)
        compare_dead(*model);
}

/// No handler fails any more: all messages must be settled.
void Episode::drain() {
    ++operation_;
    note("no handler fails, and no consumer crashes, from now on");
    killers_.clear();
    run_sql("DELETE FROM property.failure");
    for (Publisher &publisher : publishers_) {
        if (publisher.is_open)
            publisher.session->run("ROLLBACK");
        publisher.is_open = false;
    }
    for (int round = 0; round < drain_rounds; ++round) {
        ++operation_;
        bool is_over = true;
        advance(15); // no lease and no pause is longer
        run_pending(1000000, false);
        for (const auto &model : models_) {
            while (model->settings().is_service() &&
                   receive(*model, Process::own_name, random_.one_of({2, 100}), 1))
                acknowledge(batches_.back());
            while (!model->dead().empty())
                redrive(*model, model->dead().back());
            is_over = is_over && model->unsettled().empty();
        }
        if (is_over)
            return;
    }
}

void Episode::check_end() {
    std::string text;
    for (const auto &model : models_) {
        const std::string &name = model->settings().name;
        text += model->unsettled();
        const support::Rows lag = run_sql(fmt::format(
            "SELECT lag_messages FROM stacksaga.subscriptions WHERE subscription = '{}'", name));
        if (lag.number(0, 0) != 0)
            text += fmt::format("subscription {} lags by {}\n", name, lag.number(0, 0));
    }
    const support::Rows twice = run_sql("SELECT subscription, number FROM property.handled"
                                        " GROUP BY subscription, number HAVING count(*) > 1");
    for (int i = 0; i < twice.size(); ++i)
        text += fmt::format("subscription {}: message {} was handled twice\n", twice.text(i, 0),
                            twice.text(i, 1));
    if (!text.empty())
        throw Disagreement(text);
}

void Episode::tear_down() {
    advance(60);
    for (const auto &model : models_)
        run_sql(
            fmt::format("SELECT stacksaga.drop_subscription('{}', true)", model->settings().name));
    run_sql("TRUNCATE property.handled");
    maintain();
}

} // namespace stacksaga::property::outbox
