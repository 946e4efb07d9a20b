// engine/cache/head.h: an immutable committed state, and the words used about it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/shared_value.h"
#include "engine/base/short_list.h"
#include "engine/cache/head_table.h"
#include "engine/cache/kv_group.h"
#include "engine/cache/not_reused.h"
#include "engine/cache/prefix_history.h"
#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

enum class HeadKind : uint8_t {
    kTurn,        // the end of a turn: the name points to it
    kPrompt,      // prompt length - 1: regenerate, retry, rewritten answers
    kCheckpoint,  // a position the request named (message ends by default)
    kBranch,      // where a prompt left what earlier prompts had in common with it
    kCount,
};
[[nodiscard]] const char* name(HeadKind kind);

struct Name;

// Parts of it were made by different arithmetic: no deterministic request attaches to it.
inline constexpr const char* kMixedNumericsId = "mixed";

//   H1  blocks hold tokens [0, length), the state row the state after exactly `length` tokens: every group is at one
//       length
//   H2  nothing of a published head changes but which names list it
struct Head {
    HeadId id = kNoHead;
    SharedValue<CacheSalt> salt;
    HeadKind kind = HeadKind::kTurn;
    bool in_prefix_index = false;  // found by its tokens, too
    int32_t generation = 0;        // heads behind it that requests attached to, one after the other
    TokenSeq tokens;               // resident
    BlockTable blocks;
    StateIndex state = kNoState;
    uint32_t prefix_node = ~uint32_t{0};  // PrefixIndex's, as are the equal ones
    Head* newer_equal = nullptr;
    Head* older_equal = nullptr;
    PrefixChain chain;  // of `tokens`
    SharedValue<std::string> numerics_id;
    Digest digest;  // of its bytes, when digests are on

    ShortList<Name*, nullptr> names;         // that list it
    ShortList<Name*, nullptr> former_names;  // that let it go while it can still be found by its tokens

    [[nodiscard]] int64_t length() const { return tokens.size(); }
    [[nodiscard]] bool has_owner() const { return !names.empty() || !former_names.empty(); }
};

using HeadMap = HeadTable<Head>;

}  // namespace verbatim
