// tools/show/cache_view.h: a snapshot of a cache: names and the heads that they list, the heads' blocks and rows, and
// which of them are shared. Shown as text, as a Graphviz graph, and as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace verbatim::tools {

struct ShownHead {
    int64_t id = -1;
    std::string kind;
    int64_t length = 0;
    std::vector<int32_t> blocks;
    int32_t state = -1;
    std::vector<std::string> names;  // names that list it
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
    int64_t step = 0;  // the next step
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
// A row for each head and request, a column for each block; shared blocks are darker. A self-contained file.
[[nodiscard]] std::string cache_svg(const CacheView& view);

}  // namespace verbatim::tools
