// server/room.h: owns the limits of one request from a model and from the memory of its engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/cache.h"

namespace verbatim::server {

// Maximum tokens of a prompt and its answer together: the model's `positions`, or fewer where the empty cache holds
// fewer next to the copy of an attached tail. 0: it holds none.
[[nodiscard]] int64_t served_length(const CacheConfig& cache, int64_t positions);

// The startup messages about memory: the cache's capacity, a limit below the model's, and that nothing can be reused.
[[nodiscard]] std::vector<std::string> room_lines(const CacheConfig& cache, int64_t positions);

}  // namespace verbatim::server
