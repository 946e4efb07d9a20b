// engine/base/ids.h: ids are types, never bare ints. `index(id)` is the number inside.
#pragma once

#include <cstdint>
#include <type_traits>

namespace verbatim {

enum class BlockId : int32_t {};       // one KV block of the pool
enum class StateIndex : int32_t {};    // one row of the Mamba state pool
enum class SequenceSlot : int32_t {};  // a running request's place in the executors' tables; dense, reused
enum class RequestId : int64_t {};     // never reused in a run
enum class HeadId : int64_t {};        // never reused in a run
enum class Version : int64_t {};       // of a conversation: ascends with every move of its name

inline constexpr StateIndex kNoState{-1};  // "from zero" as a source, "nowhere" as a destination
inline constexpr HeadId kNoHead{-1};
inline constexpr SequenceSlot kNoSlot{-1};
inline constexpr Version kNoVersion{0};  // nothing is committed

template <typename Id>
    requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> index(Id id) { return static_cast<std::underlying_type_t<Id>>(id); }

using TokenId = int32_t;  // an entry of the vocabulary

// `count` units with consecutive ids.
template <typename Id>
struct IdRun {
    Id first{};
    int32_t count = 0;
    friend bool operator==(const IdRun&, const IdRun&) = default;
};
using BlockRun = IdRun<BlockId>;  // in the order of the tokens they hold
using RowRun = IdRun<StateIndex>;

}  // namespace verbatim
