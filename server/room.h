// server/room.h: owns what one request may have of a model and of the memory that its engine was given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/cache.h"

namespace verbatim::server {

// Tokens of a prompt and its answer together: `positions` of the model, or fewer where the empty cache holds fewer
// beside the copy of an attached tail. 0: it holds none.
[[nodiscard]] int64_t served_length(const CacheConfig& cache, int64_t positions);

// What a start says of its memory: what the cache holds, that requests are shorter than the model takes, that nothing
// can be reused.
[[nodiscard]] std::vector<std::string> room_lines(const CacheConfig& cache, int64_t positions);

}  // namespace verbatim::server
