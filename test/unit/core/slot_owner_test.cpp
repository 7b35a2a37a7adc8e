// A slot's owner and its next one: what each event makes of them.
#include "core/ring/slot_owner.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Incarnation one = 1, two = 2, three = 3;
constexpr std::int64_t window = 100, later_window = 200;

constexpr SlotOwner slot_of(Incarnation owner, Incarnation next = no_owner, std::int64_t from = 0) {
    return {.owner = owner, .epoch = 7, .next_owner = next, .next_from = from};
}

void expect_proposal(const SlotOwner &slot, Incarnation next, std::int64_t from) {
    EXPECT_EQ(slot.next_owner, next);
    EXPECT_EQ(slot.next_from, from);
}

TEST(SlotOwner, MayBeTakenOverFromItsWindowOn) {
    const SlotOwner slot = slot_of(one, two, window);
    EXPECT_FALSE(may_take_over(slot, two, window - 1));
    EXPECT_TRUE(may_take_over(slot, two, window));
    EXPECT_FALSE(may_take_over(slot, three, window));
    EXPECT_FALSE(may_take_over(slot_of(one), no_owner, window));
}

TEST(SlotOwner, TakeOverFulfilsItsOwnProposalAndLeavesThatForAThirdNode) {
    SlotOwner slot = slot_of(one, two, window);
    take(slot, two, 8);
    EXPECT_EQ(slot.owner, two);
    EXPECT_EQ(slot.epoch, 8);
    expect_proposal(slot, no_owner, 0);

    slot = slot_of(one, three, window);
    take(slot, two, 8);
    expect_proposal(slot, three, window);

    slot = slot_of(one, one, window); // it dates from before the owner gave the slot away
    take(slot, two, 8);
    expect_proposal(slot, no_owner, 0);
}

TEST(SlotOwner, WindowProposesAnotherNode) {
    SlotOwner slot = slot_of(one);
    EXPECT_TRUE(propose(slot, two, window, Relation::none, Relation::none));
    expect_proposal(slot, two, window);
}

TEST(SlotOwner, ProposalThatStandsKeepsItsEarlierInstant) {
    SlotOwner slot = slot_of(one, two, window);
    EXPECT_FALSE(propose(slot, two, later_window, Relation::none, Relation::itself));
    expect_proposal(slot, two, window);

    slot = slot_of(one, two, later_window); // an earlier window brings it forward
    EXPECT_TRUE(propose(slot, two, window, Relation::none, Relation::itself));
    expect_proposal(slot, two, window);
}

TEST(SlotOwner, WindowWithdrawsWhatItDoesNotGiveAway) {
    SlotOwner slot = slot_of(one, two, window);
    EXPECT_FALSE(propose(slot, one, later_window, Relation::itself, Relation::none));
    expect_proposal(slot, no_owner, 0);
}

TEST(SlotOwner, WindowKeepsWhatAnAgentAssignedToItsWorker) {
    SlotOwner slot = slot_of(one, two, window);
    EXPECT_FALSE(propose(slot, three, window, Relation::its_worker, Relation::its_worker));
    expect_proposal(slot, two, window);
    EXPECT_FALSE(propose(slot, three, window, Relation::none, Relation::its_worker));
    expect_proposal(slot, two, window);
}

TEST(SlotOwner, WorkerThatDrainsIsGivenNothing) {
    EXPECT_TRUE(may_be_proposed(true, false));
    EXPECT_FALSE(may_be_proposed(true, true));
    EXPECT_TRUE(may_be_proposed(false, true));
}

TEST(SlotOwner, AgentAssignsWhatItsWorkersOwnOrWhatIsProposedToIt) {
    EXPECT_TRUE(is_assigned_to_agent(slot_of(one), window, Relation::its_worker, Relation::none));
    EXPECT_FALSE(is_assigned_to_agent(slot_of(one), window, Relation::none, Relation::none));
    const SlotOwner given = slot_of(one, two, window);
    EXPECT_TRUE(is_assigned_to_agent(given, window, Relation::none, Relation::itself));
    EXPECT_FALSE(is_assigned_to_agent(given, window - 1, Relation::none, Relation::itself));
    // A master has given it to another: the agent's worker only still holds it.
    EXPECT_FALSE(is_assigned_to_agent(given, window, Relation::its_worker, Relation::none));
}

TEST(SlotOwner, NewIncarnationInheritsWhatTheOlderOwnsAndWasToOwn) {
    SlotOwner slot = slot_of(one);
    EXPECT_TRUE(inherit(slot, one, two, 50));
    expect_proposal(slot, two, 50);

    slot = slot_of(three, one, window);
    EXPECT_TRUE(inherit(slot, one, two, 50));
    expect_proposal(slot, two, window);

    slot = slot_of(one, three, window); // proposed to another already
    EXPECT_FALSE(inherit(slot, one, two, 50));
    expect_proposal(slot, three, window);

    slot = slot_of(three);
    EXPECT_FALSE(inherit(slot, one, two, 50));
    expect_proposal(slot, no_owner, 0);
}

TEST(SlotOwner, LeaverProposesItsSuccessor) {
    SlotOwner slot = slot_of(one);
    EXPECT_TRUE(propose_successor(slot, one, two, false, 50));
    expect_proposal(slot, two, 50);

    slot = slot_of(one, one, window);
    EXPECT_FALSE(propose_successor(slot, one, no_owner, false, 50)); // nobody takes it
    expect_proposal(slot, one, window);

    slot = slot_of(three, one, window);
    EXPECT_TRUE(propose_successor(slot, one, two, false, 50));
    expect_proposal(slot, two, window);

    slot = slot_of(three, one, window);
    EXPECT_FALSE(propose_successor(slot, one, two, true, 50)); // its owner stays
    expect_proposal(slot, no_owner, 0);

    slot = slot_of(three, two, window);
    EXPECT_FALSE(propose_successor(slot, one, two, false, 50));
    expect_proposal(slot, two, window);
}

TEST(SlotOwner, RingThatPausesIsOpenInAPublishedWindowThatGivesTheSlotToNoOther) {
    const SlotOwner slot = slot_of(one, two, window);
    EXPECT_TRUE(is_open(slot, MissingWindow::keep, false, window));
    EXPECT_FALSE(is_open(slot, MissingWindow::pause, false, 0));
    EXPECT_TRUE(is_open(slot, MissingWindow::pause, true, window - 1));
    EXPECT_FALSE(is_open(slot, MissingWindow::pause, true, window));
    EXPECT_TRUE(is_open(slot_of(one), MissingWindow::pause, true, window));
    EXPECT_TRUE(is_open(slot_of(one, one, window), MissingWindow::pause, true, window));
}

} // namespace
} // namespace stacksaga::core
