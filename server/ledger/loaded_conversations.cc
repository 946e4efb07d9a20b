#include "server/ledger/loaded_conversations.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {

auto LoadedConversations::find(const ConversationKey& key) const -> const Entry* {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
}

auto LoadedConversations::use(const ConversationKey& key) -> Entry* {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    Entry& entry = found->second;
    entry.last_use = ++num_uses_;
    Order& order = order_of(entry);
    order.splice(order.end(), order, entry.place);
    return &entry;
}

auto LoadedConversations::add(const ConversationKey& key, ConversationRows rows) -> Entry& {
    const auto [place, is_new] = entries_.try_emplace(key);
    CHECK(is_new, "'{}' is in memory", key.conversation_id);
    Entry& entry = place->second;
    entry.rows = std::move(rows);
    entry.last_use = ++num_uses_;
    entry.place = idle_.insert(idle_.end(), key);
    count(entry);
    return entry;
}

std::vector<ListedConversation> LoadedConversations::list(const ConversationPage& page) const {
    std::vector<ListedConversation> listed;
    auto next = entries_.upper_bound({page.salt, page.after});
    for (; next != entries_.end() && next->first.salt == page.salt && std::ssize(listed) < page.limit; ++next) {
        const ConversationRows& rows = next->second.rows;
        if (rows.exists())
            listed.push_back(
                listed_of(next->first.conversation_id, rows.version, *rows.turns.back(), std::ssize(rows.turns)));
    }
    return listed;
}

void LoadedConversations::erase(const ConversationKey& key) {
    const auto found = entries_.find(key);
    CHECK(found != entries_.end(), "'{}' is not in memory", key.conversation_id);
    num_bytes_ -= found->second.num_bytes;
    order_of(found->second).erase(found->second.place);
    entries_.erase(found);
    CHECK(entries_.size() == idle_.size() + in_engine_.size(), "{} conversations, {} and {} in order", entries_.size(),
          idle_.size(), in_engine_.size());
}

void LoadedConversations::count(Entry& entry) {
    num_bytes_ -= entry.num_bytes;
    entry.num_bytes = bytes_of(entry.rows);
    num_bytes_ += entry.num_bytes;
    CHECK_GE(num_bytes_, entry.num_bytes);
}

void LoadedConversations::enter_engine(Entry& entry) {
    if (entry.in_engine) return;
    CHECK(!idle_.empty(), "{} conversations, none of them idle", entries_.size());
    in_engine_.splice(in_engine_.end(), idle_, entry.place);
    entry.in_engine = true;
}

auto LoadedConversations::oldest(bool of_engine_too) -> Order* {
    if (!of_engine_too || in_engine_.empty()) return idle_.empty() ? nullptr : &idle_;
    if (idle_.empty()) return &in_engine_;
    const bool idle_first = entries_.at(idle_.front()).last_use < entries_.at(in_engine_.front()).last_use;
    return idle_first ? &idle_ : &in_engine_;
}

// Entries in use count as used now. A call looks at a few of them at most, once each: the next call looks at others.
void LoadedConversations::shrink(int64_t max_bytes, int64_t num_kept_changes, const Unload& unload) {
    constexpr size_t kMaxInUse = 16;
    for (size_t num_in_use = 0; num_bytes_ > max_bytes && num_in_use < std::min(kMaxInUse, entries_.size());) {
        Order* const order = oldest(unload != nullptr);
        if (order == nullptr) return;
        const ConversationKey key = order->front();
        const Entry& entry = *find(key);
        CHECK(entry.place == order->begin(), "'{}' has another place in the order of use", key.conversation_id);
        const bool may_go = entry.pin.use_count() == 1 && entry.last_change <= num_kept_changes;
        if (may_go && (!entry.in_engine || unload(key))) {
            erase(key);
        } else {
            ++num_in_use;
            use(key);
        }
    }
}

}  // namespace verbatim::server
