// Goal: what a release makes of a step in each state of its saga, beside what is charged, in doubt
// and due. Method: one rule a test, on rows that are written and loaded again after each event.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Direction compensate = Direction::compensate;

int charged(const TestSaga &s, std::string_view name, Direction d = Direction::act) {
    const Work row = s.work(name, d).value();
    return row.attempt - row.attempt_base;
}

TEST(SagaRelease, ChargesNothingAndGivesThePlaceBack) {
    TestSaga s("a queue undo once");
    s.start();
    const std::int64_t place = s.work("a")->due_at;
    s.pass(7);
    ASSERT_TRUE(s.claim("a"));
    s.pass(3);
    EXPECT_EQ(s.release("a"), AnswerOutcome::accept);
    EXPECT_EQ(s.text(), "running: a due");
    EXPECT_EQ(s.work("a")->due_at, place);
    EXPECT_EQ(charged(s, "a"), 0);
    ASSERT_TRUE(s.claim("a"));
    EXPECT_EQ(s.release("a", 60), AnswerOutcome::accept);
    EXPECT_EQ(s.text(), "running: a in 60");
    s.pass(60);
    s.serve("a");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaRelease, IsRepeatedBeforeTheNextClaimOnly) {
    TestSaga s("a queue undo once");
    s.start();
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.release("a");
    const std::string before = s.tables.dump();
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::accepted_before);
    EXPECT_EQ(s.tables.dump(), before);
    s.claim("a");
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::lease_lost);
    s.complete("a");
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::lease_lost);
}

TEST(SagaRelease, KeepsAnEarlierAttemptInDoubt) {
    TestSaga s("a queue undo started | b queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.pass(5);
    s.claim("a");
    s.release("a");
    EXPECT_TRUE(is_in_doubt(s.state(), 1));
    EXPECT_EQ(charged(s, "a"), 1);
    s.cancel();
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaRelease, LateSettlesItsAttemptAlone) {
    TestSaga s("a queue undo started");
    s.start();
    s.claim("a");
    s.expire("a");
    s.pass(5);
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.expire("a");
    EXPECT_EQ(charged(s, "a"), 2);
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::accept);
    EXPECT_EQ(charged(s, "a"), 1); // that of the first attempt, which is still in doubt
    EXPECT_EQ(find_doubt(s.state(), 1)->attempt, 1);
    EXPECT_EQ(s.text(), "running: a due");
}

TEST(SagaRelease, LateLeavesVerifyToItsQuestion) {
    TestSaga s("a queue undo started verify");
    s.start();
    s.claim("a");
    s.expire("a");
    s.verify("a", "unknown");
    s.pass(5);
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.expire("a");
    EXPECT_EQ(s.text(), "running: a verifying");
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::accept);
    EXPECT_EQ(s.text(), "running: a verifying"); // about the first attempt
    EXPECT_EQ(find_doubt(s.state(), 1)->attempt, 1);
}

TEST(SagaRelease, OfALostPivotUnparks) {
    TestSaga s("p queue pivot");
    s.start();
    s.claim("p");
    const std::int64_t lease = *s.work("p")->lease;
    s.expire("p");
    EXPECT_EQ(s.text(), "parked for p: p waits");
    EXPECT_EQ(s.release(s.step("p"), lease), AnswerOutcome::accept);
    EXPECT_EQ(s.text(), "running: p due");
}

TEST(SagaRelease, IsNotLateOnceCompensationHasBegun) {
    TestSaga s("a queue undo started once");
    s.start();
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.expire("a");
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::lease_lost);
}

TEST(SagaRelease, OfAnActIsOverWhileTheSagaCompensates) {
    TestSaga s("a queue undo");
    s.start();
    s.claim("a");
    s.cancel();
    EXPECT_EQ(s.text(), "compensating: a claimed");
    const std::int64_t lease = *s.work("a")->lease;
    EXPECT_EQ(s.release("a"), AnswerOutcome::accept);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.release(s.step("a"), lease), AnswerOutcome::accepted_before);
}

TEST(SagaRelease, OfAPivotLetsAPendingCompensationBegin) {
    TestSaga s("p queue pivot");
    s.start();
    s.claim("p");
    s.cancel();
    EXPECT_EQ(s.text(), "running: p claimed");
    s.release("p");
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaRelease, IsHeldAndWithdrawnAsOthers) {
    TestSaga s("a queue undo, p queue pivot");
    s.start();
    s.claim("a");
    s.suspend();
    s.release("a");
    EXPECT_EQ(s.text(), "suspended: a held, p held");
    s.resume();
    s.claim("a");
    s.claim("p");
    s.fail("p", FailureClass::unknown);
    s.release("a");
    EXPECT_EQ(s.text(), "parked for p: a held, p waits");
    EXPECT_FALSE(s.claim("a"));
}

TEST(SagaRelease, KeepsTheFallback) {
    TestSaga s("a queue undo fallback");
    s.start();
    s.refuse("a");
    s.claim("a");
    s.release("a");
    EXPECT_EQ(s.text(), "running: a fallback due");
    s.serve("a");
    EXPECT_TRUE(was_done_by_fallback(s.state(), 1));
}

TEST(SagaRelease, PublishesAgainAfterASecond) {
    TestSaga s("m message once");
    s.start();
    s.run("m");
    s.release("m");
    EXPECT_EQ(s.text(), "running: m in 1");
    s.pass(1);
    s.run("m");
    s.release("m", 60);
    EXPECT_EQ(s.text(), "running: m in 60");
}

TEST(SagaRelease, TooManyInARowAreCharged) {
    TestSaga s("a queue undo");
    s.start();
    for (int round = 1; round <= 2; ++round) {
        for (int i = 0; i < releases_max; ++i) {
            ASSERT_TRUE(s.claim("a"));
            s.release("a");
        }
        EXPECT_EQ(charged(s, "a"), round - 1);
        s.claim("a");
        s.release("a");
        EXPECT_EQ(charged(s, "a"), round);
        EXPECT_EQ(s.text(), "running: a in 5");
        s.pass(5);
    }
    EXPECT_EQ(s.tables.failures.back().error,
              "released more than 1,000 times in a row; deployment");
}

TEST(SagaRelease, PastTheMemoryOfAnAttemptInDoubtIsCharged) {
    TestSaga s("a queue undo started");
    s.dedupe_retention = 1000 * second;
    s.start();
    s.claim("a");
    s.release("a", 5000); // none is in doubt
    EXPECT_EQ(charged(s, "a"), 0);
    s.pass(5000);
    s.claim("a");
    s.expire("a");
    s.pass(5);
    s.claim("a");
    s.release("a", 900);
    EXPECT_EQ(charged(s, "a"), 1);
    s.pass(900);
    s.claim("a");
    s.release("a", 100);
    EXPECT_EQ(charged(s, "a"), 2);
    EXPECT_EQ(s.text(), "running: a in 100");
}

TEST(SagaRelease, ANewRowCountsOnBehindIt) {
    TestSaga s("a queue undo | b queue");
    s.dedupe_retention = 1000 * second;
    s.start();
    s.serve("a");
    s.cancel();
    s.claim("a", compensate);
    s.expire("a", compensate);
    s.pass(5);
    s.claim("a", compensate);
    s.release("a", 0, compensate);
    s.pass(2000);
    EXPECT_FALSE(s.claim("a", compensate)); // the key may be forgotten
    EXPECT_EQ(s.text(), "parked~ for ~a");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::not_done), "");
    EXPECT_EQ(s.retry(), "");
    ASSERT_TRUE(s.claim("a", compensate));
    EXPECT_EQ(s.work("a", compensate)->attempt, 3); // so its lease is larger than the released one
    EXPECT_EQ(s.release("a", 0, compensate), AnswerOutcome::accept);
}

TEST(SagaRelease, ACompletionAfterItContradicts) {
    TestSaga s("a queue undo");
    s.start();
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.release("a");
    const JudgedAnswer done = judge_completion(s.state(), s.step("a"), lease, std::nullopt);
    EXPECT_EQ(done.outcome, AnswerOutcome::lease_lost);
    EXPECT_TRUE(done.contradicts);
    for (const FailureClass same : {FailureClass::retryable, FailureClass::unknown})
        EXPECT_EQ(judge_failure(s.state(), s.step("a"), lease, same, false).outcome,
                  AnswerOutcome::accepted_before);
    EXPECT_TRUE(judge_release(s.state(), s.step("a"), 0, true).contradicts);
}

} // namespace
} // namespace stacksaga::core
