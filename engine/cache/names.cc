#include "engine/cache/names.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

Head& Names::head(HeadId id) const {
    Head* found = heads_.find(id);
    CHECK(found != nullptr, "head {}", index(id));
    return *found;
}

uint32_t Names::number_of(const ConversationKey& key) const {
    return numbers_.find(key, [&](uint32_t number) -> const ConversationKey& { return names_[number].key; });
}

const Name* Names::find(const ConversationKey& key) const {
    const uint32_t number = number_of(key);
    return number == KeyNumbers::kNone ? nullptr : &names_[number];
}

Name* Names::find_name(const ConversationKey& key) { return const_cast<Name*>(find(key)); }

// Made if it is not there.
Name& Names::name_of(const ConversationKey& key) {
    if (Name* found = find_name(key)) return *found;
    const uint32_t number = names_.add({.key = key});
    numbers_.insert(key, number);
    CHECK(find(key) == &names_[number] && numbers_.size() == names_.size(), "'{}' is not found", key.conversation_id);
    return names_[number];
}

void Names::erase(const Name& name) {
    const uint32_t number = number_of(name.key);
    CHECK(number != KeyNumbers::kNone && &names_[number] == &name, "'{}' is not there", name.key.conversation_id);
    numbers_.erase(name.key, number);
    names_.free(number);
    CHECK_EQ(numbers_.size(), names_.size());
}

// --- what a name lists

auto Names::list(const ConversationKey& key, Head& head) -> Left {
    CHECK(head.names.empty() && head.former_names.empty(), "head {} has a name already", index(head.id));
    CHECK(*head.salt == key.salt, "head {} is of another salt than '{}'", index(head.id), key.conversation_id);
    Left left;
    Name& name = name_of(key);
    if (head.kind == HeadKind::kTurn) {
        name.committed = true;
        keep_prefixes_of(name, head.tokens, left);
    }
    replace_equals(name, head, left);
    name.heads.push_back({head.length(), head.kind, head.id});
    head.names.push_back(&name);
    retain_newest(name, HeadKind::kTurn, retention_.turn_heads, left);
    retain_newest(name, HeadKind::kPrompt, retention_.prompt_heads, left);
    retain_newest(name, HeadKind::kBranch, retention_.branch_heads, left);
    retain_checkpoints(name, left);
    drop_if_empty(name);
    CHECK(head.has_owner() || std::ranges::count(left, head.id) == 1, "head {} is nobody's, and nobody is told",
          index(head.id));
    return left;
}

void Names::replace_equals(Name& name, Head& head, Left& left) {
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        if (entry.length != head.length()) continue;
        CHECK(entry.head != head.id, "head {} is listed before it is listed", index(head.id));
        const Head& same = this->head(entry.head);
        if (same.numerics_id != head.numerics_id || same.tokens != head.tokens) continue;
        head.kind = std::min(head.kind, same.kind);  // the kind that counts more comes first
        name.heads.erase(name.heads.begin() + static_cast<std::ptrdiff_t>(i));
        disown(name, entry.head, left);
    }
}

void Names::retain_newest(Name& name, HeadKind kind, int32_t keep, Left& left) {
    CHECK_GE(keep, 0);
    const int32_t most = keep;
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        if (entry.kind != kind || keep-- > 0) continue;
        let_go(name, i, left);
        name.note_gone(entry.length, NotReused::kNotRetained);
    }
    CHECK_LE(std::ranges::count(name.heads, kind, &NamedHead::kind), most);
}

// A history may turn off anywhere. The nearer its turn is to the end, the less it costs, and the less it may cost in
// vain: so the newest checkpoints stay, and those before them lie the farther apart, the farther they are from the end.
void Names::retain_checkpoints(Name& name, Left& left) {
    const auto is_checkpoint = [](const NamedHead& entry) { return entry.kind == HeadKind::kCheckpoint; };
    CHECK(std::ranges::count_if(name.heads, is_checkpoint) <= int64_t{retention_.checkpoints} + 1,
          "'{}' has more checkpoints than one too many", name.key.conversation_id);
    while (std::ranges::count_if(name.heads, is_checkpoint) > retention_.checkpoints) {
        const size_t entry = least_missed_checkpoint(name);
        const int64_t length = name.heads[entry].length;
        let_go(name, entry, left);
        name.note_gone(length, NotReused::kNotRetained);
    }
    CHECK(std::ranges::is_sorted(name.gone, {}, &GoneHeads::last), "'{}' forgets in no order",
          name.key.conversation_id);
}

// Without it, a history that turns off just before the next longer one goes on from the next shorter one: the one for
// which that is the least against what such a history has to compute anyway. The shortest one stays: a system prompt.
size_t Names::least_missed_checkpoint(const Name& name) const {
    constexpr size_t kNewest = 4;
    std::vector<size_t> entries;  // oldest first
    std::vector<int64_t> lengths = {0};
    for (size_t i = 0; i < name.heads.size(); ++i) {
        if (name.heads[i].kind != HeadKind::kCheckpoint) continue;
        entries.push_back(i);
        lengths.push_back(name.heads[i].length);
    }
    CHECK_GT(entries.size(), static_cast<size_t>(retention_.checkpoints));
    const size_t num_spread = entries.size() - std::min(entries.size(), kNewest);
    std::ranges::sort(lengths);
    const int64_t end = lengths.back() + 1;
    size_t least = entries.front();
    int64_t least_cost = 1;  // over `least_anyway`
    int64_t least_anyway = 0;
    for (size_t i = 0; i < num_spread; ++i) {
        const int64_t length = name.heads[entries[i]].length;
        const auto at = std::ranges::lower_bound(lengths, length);
        const int64_t cost = end - *(at - 1);
        const int64_t anyway = end - (at + 1 == lengths.end() ? length : *(at + 1));
        if (at == lengths.begin() + 1 || cost * least_anyway >= least_cost * anyway) continue;
        least = entries[i];
        least_cost = cost;
        least_anyway = anyway;
    }
    return least;
}

// After a commit the name's history is `tokens`: other heads of it are of an abandoned history, and so is what is known
// of them.
void Names::keep_prefixes_of(Name& name, const TokenSeq& tokens, Left& left) {
    CHECK(!tokens.empty(), "'{}' commits nothing", name.key.conversation_id);
    int64_t kept = tokens.size();
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        const int64_t common = tokens.common_prefix(head(entry.head).tokens);
        if (common == entry.length) continue;
        kept = std::min(kept, common);
        let_go(name, i, left);
    }
    name.forget_gone_beyond(kept);
    CHECK(std::ranges::all_of(name.heads, [&](const NamedHead& entry) { return entry.length <= tokens.size(); }),
          "'{}' keeps a head longer than its {} tokens", name.key.conversation_id, tokens.size());
}

// Takes the entry off the name's list. What can be found by its tokens stays the name's own until it is destroyed.
void Names::let_go(Name& name, size_t entry, Left& left) {
    CHECK_LT(entry, name.heads.size());
    const HeadId id = name.heads[entry].head;
    name.heads.erase(name.heads.begin() + static_cast<std::ptrdiff_t>(entry));
    Head& head = this->head(id);
    CHECK_EQ(head.names.erase(&name), 1u);
    if (head.in_prefix_index) {
        name.former.change([&](auto& ids) { ids.insert(std::ranges::lower_bound(ids, id), id); });
        head.former_names.push_back(&name);
    }
    if (!head.has_owner()) left.push_back(id);
}

// --- what happens to a name

auto Names::fork(const ConversationKey& from, const ConversationKey& to) -> Left {
    CHECK(from.salt == to.salt && from != to, "a fork of '{}' to '{}'", from.conversation_id, to.conversation_id);
    const Name* origin = find(from);
    if (origin == nullptr) return {};
    Left left = remove(to);
    CHECK(find(from) == origin && find(to) == nullptr, "'{}' took '{}' along", to.conversation_id,
          from.conversation_id);
    Name& name = name_of(to);
    name = *origin;
    name.key = to;
    name.committed = true;
    for (const NamedHead& entry : name.heads) head(entry.head).names.push_back(&name);
    for (const HeadId id : name.former) head(id).former_names.push_back(&name);
    return left;
}

auto Names::rewind(const ConversationKey& key, int64_t length) -> Left {
    Name* found = find_name(key);
    if (found == nullptr) return {};
    Left left;
    CHECK_GE(length, 0);
    Name& name = *found;
    for (size_t i = name.heads.size(); i-- > 0;) {
        if (name.heads[i].length > length) let_go(name, i, left);
    }
    name.forget_gone_beyond(length);
    CHECK(std::ranges::none_of(name.heads, [&](const NamedHead& entry) { return entry.length > length; }),
          "'{}' keeps a head beyond {}", key.conversation_id, length);
    return left;
}

auto Names::remove(const ConversationKey& key) -> Left {
    Name* found = find_name(key);
    if (found == nullptr) return {};
    Left left;
    Name& name = *found;
    for (const NamedHead& entry : std::exchange(name.heads, {})) disown(name, entry.head, left);
    for (const HeadId id : std::exchange(name.former, {})) disown(name, id, left);
    CHECK(!name.has_heads(), "'{}' was given heads while it went", key.conversation_id);
    erase(name);
    return left;
}

void Names::disown(Name& name, HeadId id, Left& left) {
    Head& head = this->head(id);
    const size_t num_owned = head.names.erase(&name) + head.former_names.erase(&name);
    CHECK(num_owned == 1, "head {} is {} times of '{}'", index(id), num_owned, name.key.conversation_id);
    if (!head.has_owner()) left.push_back(id);
}

// A name without heads that never committed is unused: its conversation was never there.
void Names::drop_if_empty(Name& name) {
    if (name.committed || name.has_heads()) return;
    erase(name);
}

void Names::note_lost(const ConversationKey& key, std::span<const int64_t> lengths) {
    CHECK(std::ranges::all_of(lengths, [](int64_t length) { return length > 0; }), "'{}' lost a head of no tokens",
          key.conversation_id);
    Name& name = name_of(key);
    name.committed = true;
    for (const int64_t length : lengths) {
        const bool is_listed = std::ranges::find(name.heads, length, &NamedHead::length) != name.heads.end();
        if (!is_listed && !name.knows_gone(length)) name.note_gone(length, NotReused::kLost);
    }
    CHECK(find(key) != nullptr, "'{}' has no name", key.conversation_id);
}

void Names::unload(const ConversationKey& key) {
    Name* found = find_name(key);
    if (found == nullptr) return;
    const bool stays = found->has_heads();
    found->committed = false;
    drop_if_empty(*found);
    CHECK((find(key) != nullptr) == stays, "'{}' is unloaded, and its name without heads stays", key.conversation_id);
}

void Names::take_off(Head& head, NotReused reason) {
    for (Name* name : std::exchange(head.names, {})) {
        CHECK_EQ(std::erase_if(name->heads, [&](const NamedHead& entry) { return entry.head == head.id; }), 1u);
        name->note_gone(head.length(), reason);
        drop_if_empty(*name);
    }
    for (Name* name : std::exchange(head.former_names, {})) {
        const auto erased = name->former.change([&](auto& ids) { return std::erase(ids, head.id); });
        CHECK(erased == 1, "'{}' did not let head {} go", name->key.conversation_id, index(head.id));
        drop_if_empty(*name);
    }
}

// --- from scratch

void Names::verify() const {
    heads_.for_each([&](HeadId, const Head& head) { verify_head(head); });
    size_t num_names = 0;
    for (const Name& name : names_.all()) {
        if (!name.committed && !name.has_heads() && find(name.key) != &name) continue;  // free
        verify_name(name.key, name);
        ++num_names;
    }
    CHECK_EQ(num_names, numbers_.size());
}

void Names::verify_head(const Head& head) const {
    for (const Name* name : head.names) {
        const auto lists = std::ranges::count(name->heads, head.id, &NamedHead::head);
        CHECK(lists == 1, "head {} is listed {} times by '{}'", index(head.id), lists, name->key.conversation_id);
        CHECK(name->key.salt == *head.salt, "head {} is listed under another salt", index(head.id));
        CHECK(find(name->key) == name, "head {} knows a name that is gone", index(head.id));
    }
    for (const Name* name : head.former_names) {
        CHECK(std::ranges::binary_search(name->former, head.id) && find(name->key) == name,
              "head {} is not among the former heads of '{}'", index(head.id), name->key.conversation_id);
    }
}

void Names::verify_name(const ConversationKey& key, const Name& name) const {
    CHECK(name.committed || name.has_heads(), "name '{}' is nobody's", key.conversation_id);
    CHECK_LE(name.gone.size(), Name::kMaxGone);
    for (const NamedHead& entry : name.heads) {
        const Head* found = heads_.find(entry.head);
        CHECK(found != nullptr && found->length() == entry.length, "name '{}' lists head {} at length {}",
              key.conversation_id, index(entry.head), entry.length);
        CHECK(std::ranges::count(found->names, &name) == 1, "head {} does not know that '{}' lists it",
              index(entry.head), key.conversation_id);
    }
    for (const HeadId id : name.former) {
        const Head* found = heads_.find(id);
        CHECK(found != nullptr && std::ranges::count(found->former_names, &name) == 1,
              "head {} does not know that '{}' let it go", index(id), key.conversation_id);
    }
    for (const auto& [kind, keep] : {std::pair{HeadKind::kTurn, retention_.turn_heads},
                                     {HeadKind::kPrompt, retention_.prompt_heads},
                                     {HeadKind::kBranch, retention_.branch_heads},
                                     {HeadKind::kCheckpoint, retention_.checkpoints}}) {
        const auto lists = std::ranges::count(name.heads, kind, &NamedHead::kind);
        CHECK(lists <= keep, "'{}' lists {} of {} {} heads", key.conversation_id, lists, keep, verbatim::name(kind));
    }
}

}  // namespace verbatim
