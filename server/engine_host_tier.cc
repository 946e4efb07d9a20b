// Requests that wait for a head of the tier, and what calls on conversations change in it.
#include <utility>

#include "engine/base/check.h"
#include "server/engine_host.h"

namespace verbatim::server {

// The command comes again when the head is read, or cannot be, or has lost to computing.
void EngineHost::wait_for_tier(Command command, const FoundHead& found) {
    const Ticket ticket = command.ticket;
    CHECK(tier_ && !head_waits_.contains(ticket), "request {} waits for a head", static_cast<int64_t>(ticket));
    waiting_[ticket] = false;
    command.found = found;
    const auto reading = std::make_shared<const HeadTier::Reading>();
    head_waits_[ticket] = {std::move(command), steady_now(), reading};
    const auto loaded = [this, ticket](HeadTier::FilePtr file) {
        {
            const std::lock_guard lock(mutex_);
            heads_.emplace_back(ticket, std::move(file));
        }
        changed_.notify_all();
    };
    tier_->load(found, loaded, reading);
}

void EngineHost::take_in_heads() {
    std::vector<std::pair<Ticket, HeadTier::FilePtr>> heads;
    {
        const std::lock_guard lock(mutex_);
        heads.swap(heads_);
    }
    for (auto& [ticket, file] : heads) {
        auto wait = head_waits_.extract(ticket);
        if (wait.empty()) continue;  // it was not waited for
        wait.mapped().command.head = std::move(file);
        carry_out(std::move(wait.mapped().command));
    }
    for (auto next = head_waits_.begin(); next != head_waits_.end();) {
        const auto wait = next++;
        CHECK(wait->second.command.found && waiting_.contains(wait->first), "request {} waits for no head",
              static_cast<int64_t>(wait->first));
        const FoundHead& found = *wait->second.command.found;
        const bool is_aborted = waiting_.at(wait->first);
        if (!is_aborted && !tier_->has_lost(found, wait->second.since)) continue;
        auto late = head_waits_.extract(wait);
        late.mapped().command.is_late = true;
        if (!is_aborted) tier_->note_not_worth();
        carry_out(std::move(late.mapped().command));
    }
}

// The conversations of the call are ready.
void EngineHost::carry_out_call(Command command) {
    CHECK(command.call && command.done);
    using Kind = ConversationCall::Kind;
    const ConversationCall call = *command.call;
    const ConversationKey fork{call.key.salt, call.to};
    const Ledger::Conversation* before = engine_.ledger().find(call.key);
    const TokenSeq committed = before == nullptr ? TokenSeq() : before->committed;
    // One that has never committed may have heads, too.
    const bool removes = call.kind == Kind::kRemove || (call.kind == Kind::kRemoveResponse && before != nullptr);
    const bool forks = call.kind == Kind::kFork && engine_.ledger().find(fork) == nullptr;
    server::carry_out(call, engine_, *ledger_, std::move(command.done));
    if (!tier_) return;
    const bool is_gone = removes && engine_.ledger().find(call.key) == nullptr && ledger_->problem().empty();
    if (is_gone) tier_->forget(call.key, committed);
    const Ledger::Conversation* made = forks ? engine_.ledger().find(fork) : nullptr;
    if (made != nullptr) tier_->note_forked(call.key, fork, made->committed);
}

// And nothing else can be done.
bool EngineHost::waits_for_head() const { return tier_ && engine_.waits_for_head() && !tier_->has_arrived(); }

}  // namespace verbatim::server
