// tools/replay/cache_view.h: who holds what in a cache, at a moment: names, the heads that they list, the blocks and
// rows of these, and who shares them. Drawn as text, as a Graphviz graph, and as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine/engine.h"

namespace verbatim::tools {

struct ShownHead {
    int64_t id = -1;
    std::string kind;
    int64_t length = 0;
    std::vector<int32_t> blocks;
    int32_t state = -1;
    std::vector<std::string> names;  // that list it
};
struct ShownRequest {
    int64_t id = -1;
    std::string conversation;
    int64_t num_computed = 0;
    int64_t num_tokens = 0;
    std::vector<int32_t> blocks;
    int32_t state = -1;
};
struct CacheView {
    int64_t step = 0;  // the next one
    int32_t num_blocks = 0;
    int64_t used_blocks = 0;
    int32_t num_state_rows = 0;
    int64_t used_state_rows = 0;
    std::vector<ShownHead> heads;        // by id
    std::vector<ShownRequest> requests;  // running ones, oldest first
};
[[nodiscard]] CacheView view_of(const Engine& engine);

[[nodiscard]] std::string cache_text(const CacheView& view);
[[nodiscard]] std::string cache_graph(const CacheView& view);  // Graphviz
// A row for each head and request, a column for each block; shared blocks are darker. Nothing from elsewhere is needed
// to see it.
[[nodiscard]] std::string cache_svg(const CacheView& view);

}  // namespace verbatim::tools
