// A model of messages, retries and processes that crash, each with all the batches that it holds:
// several at once, under names of their own or one name. No message but those that end their
// process is ever charged, and those run out of attempts after few crashes.
#include "core/outbox/batch_room.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr int lease = 30;

enum class Rule : std::uint8_t {
    alone_with_consumer,
    alone_in_batch, ///< whatever else its consumer held
};

struct Message {
    int partition;
    bool kills;
    int charged = 0;
    int crashes = 0; ///< that it has caused
    bool is_over = false;
};

struct Batch {
    int process, name;
    int from, until;
    std::vector<int> messages;
    std::vector<int> partitions;
    bool is_answered = false;
    bool is_found = false; ///< to be lost, in one partition at least
};

struct Place {
    std::int32_t room = any_room;
    int batch = -1; ///< that has the partition, or whose lease ran out unanswered
};

struct Outcome {
    int innocent_charges = 0;
    int innocent_deaths = 0;
    int crashes = 0; ///< at most, by one message
    bool is_settled = false;
};

class World {
public:
    World(unsigned seed, Rule rule) : random_{seed}, rule_{rule} {
        places_.resize(size_t{1} << below(5));
        hints_ = places_;
        const int count = 1 + below(100), killers = 1 + below(3);
        for (int i = 0; i < count; ++i)
            messages_.push_back({.partition = below(size(places_)), .kills = i < killers});
        std::ranges::shuffle(messages_, random_);
        processes_ = 1 + below(6);
        names_ = 1 + below(processes_);
        held_most_ = 1 + below(4);
        attempts_ = std::array{1, 2, 5}[static_cast<size_t>(below(3))];
        asked_ = std::array{1, 2, 100}[static_cast<size_t>(below(3))];
    }

    Outcome run() {
        for (int step = 0; step < 200'000 && !is_settled(); ++step) {
            if (below(5) == 0)
                publish();
            if (below(3) == 0)
                pass_time();
            else if (below(2) == 0)
                receive(below(processes_));
            else if (const std::optional<int> batch = any_of(below(processes_)))
                handle(*batch);
        }
        outcome_.is_settled = is_settled();
        for (const Message &m : messages_) {
            outcome_.crashes = std::max(outcome_.crashes, m.crashes);
            outcome_.innocent_charges += m.kills ? 0 : m.charged;
            outcome_.innocent_deaths += !m.kills && m.charged == attempts_ ? 1 : 0;
        }
        return outcome_;
    }

private:
    template <class T> static int size(const std::vector<T> &of) {
        return static_cast<int>(of.size());
    }
    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
    Batch &batch(int id) { return batches_[static_cast<size_t>(id)]; }
    Place &place(int partition) { return places_[static_cast<size_t>(partition)]; }
    Message &message(int i) { return messages_[static_cast<size_t>(i)]; }

    bool is_settled() const {
        return std::ranges::all_of(messages_, [](const Message &m) { return m.is_over; });
    }
    bool is_leased(const Place &p) {
        return p.batch >= 0 && batch(p.batch).until > now_ && !batch(p.batch).is_answered;
    }
    bool has(int id, int process) {
        const Batch &b = batch(id);
        return b.process == process && !b.is_answered && !is_crashed_[static_cast<size_t>(id)];
    }
    std::vector<int> held(int process) {
        std::vector<int> ids;
        for (int id = 0; id < size(batches_); ++id)
            if (has(id, process))
                ids.push_back(id);
        return ids;
    }
    std::optional<int> any_of(int process) {
        const std::vector<int> ids = held(process);
        return ids.empty() ? std::nullopt
                           : std::optional{ids[static_cast<size_t>(below(size(ids)))]};
    }

    /// A process handles what it holds before the lease is over.
    void pass_time() {
        const int until = now_ + 1 + below(10);
        for (int id = 0; id < size(batches_); ++id)
            if (has(id, batch(id).process) && batch(id).until <= until)
                handle(id);
        now_ = until;
        if (below(2) == 0)
            hints_ = places_;
    }

    /// As long as there is a message that ends processes: consumers always have something to do.
    void publish() {
        if (std::ranges::any_of(messages_, [](const Message &m) { return m.kills && !m.is_over; }))
            messages_.push_back({.partition = below(size(places_)), .kills = false});
    }

    void handle(int id) {
        Batch &b = batch(id);
        for (int i : b.messages)
            if (message(i).kills) {
                ++message(i).crashes;
                for (int other : held(b.process))
                    is_crashed_[static_cast<size_t>(other)] = true;
                return;
            }
        b.is_answered = true;
        for (int i : b.messages)
            message(i).is_over = true;
        for (int p : b.partitions)
            place(p) = {.room = room_after_answer(place(p).room)};
    }

    Company company_of(int id) {
        const Batch &b = batch(id);
        Company company = Company::none;
        for (int i = 0; i < size(batches_); ++i) {
            const Batch &other = batch(i);
            if (i == id || other.name != b.name || other.is_answered || other.until <= b.from ||
                other.from >= b.until)
                continue;
            if (other.is_found || other.until <= now_)
                return Company::lost;
            company = Company::open;
        }
        return company;
    }

    /// False: it waits for what its consumer has besides.
    bool end_lost(Place &p) {
        Batch &b = batch(p.batch);
        const Company company = rule_ == Rule::alone_in_batch ? Company::none : company_of(p.batch);
        const int count = size(b.messages);
        if (count == 1 && company == Company::open && now_ < b.until + (b.until - b.from))
            return false;
        b.is_found = true;
        p = {.room = room_after_loss(count, company)};
        if (is_charged_for_loss(count, company)) {
            Message &m = message(b.messages[0]);
            m.is_over = ++m.charged == attempts_;
        }
        return true;
    }

    /// What a receive reads before it locks a partition may be old.
    void receive(int process) {
        if (size(held(process)) == held_most_)
            return;
        if (below(4) != 0)
            hints_ = places_;
        const int name = process % names_;
        bool holds_any = false, holds_lone = false, waits = false;
        for (const Place &p : hints_) {
            const bool is_own = is_leased(p) && batch(p.batch).name == name;
            holds_any = holds_any || is_own;
            holds_lone = holds_lone || (is_own && p.room == lone_room);
            waits = waits || (p.batch < 0 && p.room == lone_room);
        }
        const Offer offer =
            rule_ == Rule::alone_in_batch ? Offer::any : offer_to(holds_any, holds_lone, waits);
        if (offer != Offer::nothing)
            gather(process, offer == Offer::lone);
    }

    void gather(int process, bool is_lone) {
        Batch b{.process = process,
                .name = process % names_,
                .from = now_,
                .until = now_ + lease,
                .messages = {},
                .partitions = {}};
        std::int32_t most = is_lone ? 1 : asked_;
        std::vector<int> order(places_.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, random_);
        for (int i : order) {
            const Place &hint = hints_[static_cast<size_t>(i)];
            const bool is_waiting = hint.batch < 0 && hint.room == lone_room;
            if (!is_leased(hint) && is_waiting == is_lone)
                take(i, is_lone, most, b);
        }
        if (b.messages.empty())
            return;
        for (int i : b.partitions)
            place(i).batch = size(batches_);
        batches_.push_back(b);
        is_crashed_.push_back(false);
    }

    void take(int i, bool is_lone, std::int32_t &most, Batch &b) {
        Place &p = place(i);
        if (is_leased(p) || (p.batch < 0 && p.room == lone_room && !is_lone))
            return;
        const auto count = size(b.messages);
        const bool was_lost = p.batch >= 0;
        const std::int32_t room =
            was_lost ? room_after_loss(size(batch(p.batch).messages), Company::none) : p.room;
        std::int32_t more = room_in_batch(room, count, most - count);
        if (more == 0 || (was_lost && !end_lost(p)) || (was_lost && p.room == lone_room))
            return;
        for (int pass = 0; pass < 2; ++pass) // those that were charged come first
            for (int j = 0; j < size(messages_) && more > 0; ++j)
                if (const Message &m = message(j);
                    m.partition == i && !m.is_over && (m.charged > 0) == (pass == 0)) {
                    b.messages.push_back(j);
                    --more;
                }
        if (size(b.messages) == count) {
            p.room = p.room == lone_room ? 1 : p.room;
            return;
        }
        b.partitions.push_back(i);
        if (p.room != any_room)
            most = std::clamp(most_messages(p.room), size(b.messages), most);
    }

    std::mt19937 random_;
    Rule rule_;
    std::vector<Place> places_;
    std::vector<Place> hints_; ///< as a session has read them
    std::vector<Message> messages_;
    std::vector<Batch> batches_;
    std::vector<char> is_crashed_; ///< the process of a batch
    int processes_, names_;
    int held_most_; ///< batches of a process
    int attempts_;
    int asked_;
    int now_ = 0;
    Outcome outcome_;
};

constexpr unsigned worlds = 1500;

TEST(LoneMessage, OnlyMessagesThatEndTheirProcessAreCharged) {
    for (unsigned seed = 0; seed < worlds; ++seed) {
        const Outcome outcome = World{seed, Rule::alone_with_consumer}.run();
        ASSERT_TRUE(outcome.is_settled) << "world " << seed;
        ASSERT_EQ(outcome.innocent_charges, 0) << "world " << seed;
        ASSERT_LE(outcome.crashes, 24) << "world " << seed;
    }
}

TEST(LoneMessage, TheModelFindsInnocentDeathsWhereOneBatchIsAllThatCounts) {
    int deaths = 0;
    for (unsigned seed = 0; seed < worlds; ++seed)
        deaths += World{seed, Rule::alone_in_batch}.run().innocent_deaths;
    EXPECT_GT(deaths, 50);
}

} // namespace
} // namespace stacksaga::core
