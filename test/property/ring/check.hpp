// What a call may have done to the slots of a ring: compares them before and after it.
#pragma once

#include "model.hpp"

namespace stacksaga::property::ring {

/// A call as the checks need it: slots in `busy` are locked by transactions that work in them.
struct Change {
    const Ring &before; ///< with the nodes as they were
    const Ring &after;
    int now;
    const SlotSet &busy;
    bool is_one_call = true; ///< not several at the same time
};

/// Of any call: epochs rise with each change of owner and never fall, and no slot changes hands in
/// which a transaction works.
void check_epochs(const Change &change);

/// The slots are these; where the owner is another one, the epoch is a new one.
void check_slots(const Change &change, const Slots &expected);

/// A worker that takes part in the ring, is `node` by now, and beats or registers: it takes over
/// what is proposed to it, or sweeps.
void check_take_over(const Change &change, const Node &node);

/// `leaver` drains, or leaves: its slots go to successors.
void check_hand_over(const Change &change, const Node &leaver, bool leaves);

/// These workers beat at the same time.
void check_together(const Change &change, const std::vector<Node> &workers);

} // namespace stacksaga::property::ring
