// In which order the candidates of a search are tried: with the turns of lower ranks among them.
#include "src/work/claim_memory.hpp"
#include "src/work/claim_search.hpp"

namespace stacksaga {

CandidateOrder::CandidateOrder(const ClaimSearch &search, const Candidates &candidates)
    : search_(search), candidates_(candidates),
      lower_tried_(static_cast<bool *>(palloc0(sizeof(bool) * (candidates.lower.size() + 1)))) {}

const Candidate *CandidateOrder::next() {
    while (at_ < candidates_.list.size() && was_tried(candidates_.list[at_]))
        ++at_;
    if (at_ == candidates_.list.size())
        return last_ = nullptr;
    was_turn_ = memory_of(search_.ring_id, search_.queue).turn.has_come();
    last_ = was_turn_ ? next_lower() : nullptr;
    if (last_ == nullptr)
        last_ = &candidates_.list[at_++];
    return last_;
}

/// The longest-waiting one of a rank below that of the next one of the list.
const Candidate *CandidateOrder::next_lower() {
    for (; lower_at_ < candidates_.lower.size(); ++lower_at_) {
        if (candidates_.lower[lower_at_].rank <= candidates_.list[at_].rank)
            continue; // nor is it below those that follow
        lower_tried_[lower_at_] = true;
        return &candidates_.lower[lower_at_++];
    }
    return nullptr;
}

/// Whether it was tried in a turn of the lower ranks.
bool CandidateOrder::was_tried(const Candidate &candidate) const {
    for (size_t i = 0; i < lower_at_; ++i) {
        const Candidate &c = candidates_.lower[i];
        if (lower_tried_[i] && c.step_no == candidate.step_no &&
            c.direction == candidate.direction &&
            memcmp(&c.saga_id, &candidate.saga_id, sizeof(pg_uuid_t)) == 0)
            return true;
    }
    return false;
}

void CandidateOrder::note_claimed() {
    QueueMemory &memory = memory_of(search_.ring_id, search_.queue);
    memory.turn.note(was_turn_);
    memory.last_claim.note(last_->due_at, search_.now);
    memory.cursors[static_cast<size_t>(last_->rank)].set(last_->group);
}

} // namespace stacksaga
