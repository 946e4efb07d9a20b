// engine/cache/names.h: owns the names of conversations: which heads each lists, and which of them it keeps.
//   M1  a head knows the names that list it and those that it was let go by, and they know it
//   M2  a name lists heads of its salt, each at its length
//   M3  of a kind a name lists at most as many heads as Retention says, and of equal tokens and arithmetic one
//   M4  a name without heads is a loaded conversation's that has committed; another goes with its last head
//   M5  a head that has lost its last name is returned once, and the caller releases its memory
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/slot_map.h"
#include "engine/cache/head.h"
#include "engine/cache/name.h"
#include "engine/request/key_numbers.h"
#include "engine/request/request.h"

namespace verbatim {

// How many heads of a kind a name keeps: the newest ones, and of checkpoints beyond four some before them.
struct Retention {
    int32_t turn_heads = 2;
    int32_t prompt_heads = 1;
    int32_t branch_heads = 1;
    int32_t checkpoints = 4;
};

class Names {
public:
    // Heads that belong to no name any more, in the order in which they left.
    using Left = std::vector<HeadId>;

    // `heads` is borrowed for the names' life.
    Names(const Retention& retention, HeadMap& heads) : retention_(retention), heads_(heads) {}

    // The head becomes the newest of the name, which is made where there is none. A turn head commits: heads that are
    // no prefix of it leave the name. A head of the same tokens and arithmetic leaves, too; if it was of a kind that
    // counts more, the new one is of that kind. REQUIRES: no name knows the head.
    [[nodiscard]] Left list(const ConversationKey& key, Head& head);
    // `to` becomes a name over the same heads, instead of what was under it.
    [[nodiscard]] Left fork(const ConversationKey& from, const ConversationKey& to);
    // Every head longer than `length` leaves the name. No name, no change.
    [[nodiscard]] Left rewind(const ConversationKey& key, int64_t length);
    [[nodiscard]] Left remove(const ConversationKey& key);
    // The conversation has committed turns, and had heads of these lengths. Those that the name neither lists nor knows
    // as gone are lost.
    void note_lost(const ConversationKey& key, std::span<const int64_t> lengths);
    // The conversation is unloaded: its name goes with the last head.
    void unload(const ConversationKey& key);
    // The head goes for this reason: off every name.
    void take_off(Head& head, NotReused reason);

    [[nodiscard]] const Name* find(const ConversationKey& key) const;
    void verify() const;  // M1 to M4 from scratch

private:
    Head& head(HeadId id) const;
    [[nodiscard]] uint32_t number_of(const ConversationKey& key) const;
    [[nodiscard]] Name* find_name(const ConversationKey& key);
    Name& name_of(const ConversationKey& key);
    void erase(const Name& name);
    void replace_equals(Name& name, Head& head, Left& left);
    void retain_newest(Name& name, HeadKind kind, int32_t keep, Left& left);
    void retain_checkpoints(Name& name, Left& left);
    [[nodiscard]] size_t least_missed_checkpoint(const Name& name) const;
    void keep_prefixes_of(Name& name, const TokenSeq& tokens, Left& left);
    void let_go(Name& name, size_t entry, Left& left);
    void disown(Name& name, HeadId id, Left& left);
    void drop_if_empty(Name& name);
    void verify_head(const Head& head) const;
    void verify_name(const ConversationKey& key, const Name& name) const;

    Retention retention_;
    HeadMap& heads_;
    SlotMap<Name, uint32_t> names_;  // heads point to them
    KeyNumbers numbers_;             // of names_
};

}  // namespace verbatim
