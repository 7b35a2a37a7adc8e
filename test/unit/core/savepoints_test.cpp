// What follows savepoints is there as long as the subtransactions in which it came about.
#include "core/common/savepoints.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace stacksaga::core {
namespace {

/// A stack of counts, with room as in the memory of a transaction.
class Counts {
public:
    void add(std::int32_t level) {
        ++stack_.at(level, [&] { return &room_.emplace_back(); });
    }
    void release(std::int32_t level) { stack_.release(level); }
    void roll_back(std::int32_t level) { stack_.roll_back(level); }
    std::int64_t sum() const {
        std::int64_t sum = 0;
        stack_.each([&](std::int64_t count) { sum += count; });
        return sum;
    }
    std::size_t levels() const {
        std::size_t levels = 0;
        stack_.each([&](std::int64_t) { ++levels; });
        return levels;
    }
    void clear() { stack_.clear(); }

private:
    SavepointStack<std::int64_t> stack_;
    std::deque<SavepointStack<std::int64_t>::Level> room_;
};

TEST(SavepointStack, RollingBackTakesAwayWhatCameSince) {
    Counts counts;
    counts.add(1);
    counts.add(3);
    counts.release(3);
    counts.add(2);
    EXPECT_EQ(counts.sum(), 3);
    counts.roll_back(2);
    EXPECT_EQ(counts.sum(), 1);
    counts.add(2);
    counts.release(2);
    EXPECT_EQ(counts.sum(), 2);
    counts.roll_back(1);
    EXPECT_EQ(counts.sum(), 0);
}

TEST(SavepointStack, HasOneValueAtTheEndOfATransaction) {
    Counts counts;
    for (std::int32_t level = 4; level > 1; --level) {
        counts.add(level);
        counts.release(level);
    }
    EXPECT_EQ(counts.levels(), 1U);
    EXPECT_EQ(counts.sum(), 3);
    counts.clear();
    EXPECT_EQ(counts.levels(), 0U);
}

/// What came about, one list for each open subtransaction. A thing is a number.
class Model {
public:
    std::int32_t level() const { return static_cast<std::int32_t>(open_.size()); }
    void begin() { open_.emplace_back(); }
    void add(int thing) { open_.back().push_back(thing); }
    void release() {
        const std::vector<int> ended = open_.back();
        open_.pop_back();
        open_.back().insert(open_.back().end(), ended.begin(), ended.end());
    }
    void roll_back() { open_.pop_back(); }
    std::vector<int> things() const {
        std::vector<int> all;
        for (const std::vector<int> &each : open_)
            all.insert(all.end(), each.begin(), each.end());
        std::sort(all.begin(), all.end());
        return all;
    }

private:
    std::vector<std::vector<int>> open_{{}};
};

struct Thing {
    int number;
    Lasting lasting;
};

/// The same through a stack of counts and through a list of things that know how long they last.
class Subject {
public:
    void add(int thing, std::int32_t level) {
        counts_.add(level);
        things_.push_back({thing, Lasting(level)});
    }
    void release(std::int32_t level) {
        counts_.release(level);
        for (Thing &thing : things_)
            thing.lasting.release(level);
    }
    void roll_back(std::int32_t level) {
        counts_.roll_back(level);
        std::erase_if(things_, [&](const Thing &t) { return t.lasting.is_undone_with(level); });
    }
    std::int64_t count() const { return counts_.sum(); }
    std::vector<int> things() const {
        std::vector<int> all;
        for (const Thing &thing : things_)
            all.push_back(thing.number);
        return all;
    }

private:
    Counts counts_;
    std::vector<Thing> things_;
};

TEST(Savepoints, KeepOfAnyRunWhatIsNotRolledBack) {
    std::mt19937 random(20261127);
    for (int run = 0; run < 2000; ++run) {
        Model model;
        Subject subject;
        int next = 0;
        for (int i = 0; i < 60; ++i) {
            const std::int32_t level = model.level();
            switch (random() % 5) {
            case 0:
            case 1:
                model.add(next);
                subject.add(next++, level);
                break;
            case 2:
                model.begin();
                break;
            case 3:
                if (level > 1) {
                    subject.release(level);
                    model.release();
                }
                break;
            default:
                if (level > 1) {
                    subject.roll_back(level);
                    model.roll_back();
                }
            }
            ASSERT_EQ(subject.things(), model.things());
            ASSERT_EQ(subject.count(), static_cast<std::int64_t>(model.things().size()));
        }
    }
}

TEST(Lasting, TellsWhichOfTwoGoesFirst) {
    const Lasting never;
    EXPECT_FALSE(never.has_happened());
    EXPECT_FALSE(never.is_undone_with(1));
    EXPECT_FALSE(never.is_as_lasting_as(Lasting(3)));
    Lasting inner(3);
    EXPECT_FALSE(inner.is_as_lasting_as(Lasting(2)));
    inner.release(3);
    EXPECT_TRUE(inner.is_as_lasting_as(Lasting(2)));
    EXPECT_TRUE(inner.is_undone_with(2));
    EXPECT_FALSE(inner.is_undone_with(3));
}

TEST(Lasting, StaysUnhappenedWhenSavepointsAreReleased) {
    Lasting never;
    never.release(2);
    EXPECT_FALSE(never.has_happened());
}

} // namespace
} // namespace stacksaga::core
