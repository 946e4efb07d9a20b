#include "tools/show/cache_view.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "files/svg.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

std::vector<int32_t> ids_of(const KvGroup& kv, const BlockTable& table) {
    std::vector<int32_t> ids;
    for (const BlockRun& run : kv.runs(table)) {
        for (int32_t i = 0; i < run.count; ++i) ids.push_back(index(run.first) + i);
    }
    return ids;
}

// "0-3 7 9-10"
std::string ranges(const std::vector<int32_t>& ids) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < ids.size();) {
        size_t last = i;
        while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
        parts.push_back(last == i ? fmt::format("{}", ids[i]) : fmt::format("{}-{}", ids[i], ids[last]));
        i = last + 1;
    }
    return fmt::format("{}", fmt::join(parts, " "));
}

std::string row_text(int32_t state) { return state < 0 ? "" : fmt::format("{}", state); }

std::map<int32_t, int> holders_of_blocks(const CacheView& view) {
    std::map<int32_t, int> count;
    for (const ShownHead& head : view.heads) {
        for (const int32_t block : head.blocks) ++count[block];
    }
    for (const ShownRequest& request : view.requests) {
        for (const int32_t block : request.blocks) ++count[block];
    }
    return count;
}

int64_t num_shared(const std::vector<int32_t>& blocks, const std::map<int32_t, int>& holders) {
    return std::ranges::count_if(blocks, [&](int32_t block) { return holders.at(block) > 1; });
}

// Quoted for Graphviz, without its special characters.
std::string quoted(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                           std::string_view("-_./: ").find(c) != std::string_view::npos;
        out += plain ? c : '_';
    }
    return out;
}

}  // namespace

CacheView view_of(const Engine& engine) {
    CacheView view;
    view.step = engine.next_step();
    const Cache& cache = engine.cache();
    view.num_blocks = cache.config().has_kv ? cache.config().pools.num_blocks : 0;
    view.used_blocks = cache.kv().pool().num_used();
    view.num_state_rows = cache.config().has_state ? cache.config().pools.num_state_rows : 0;
    view.used_state_rows = cache.state().pool().num_used();
    for (const Head* head : cache.heads()) {
        ShownHead shown{index(head->id),    name(head->kind),
                        head->length(),     ids_of(cache.kv(), head->blocks),
                        index(head->state), {}};
        for (const Name* each : head->names) shown.names.push_back(each->key.conversation_id);
        view.heads.push_back(std::move(shown));
    }
    std::ranges::sort(view.heads, {}, &ShownHead::id);
    for (const Sequence* sequence : engine.scheduler().running()) {
        view.requests.push_back({index(sequence->id), sequence->request.conversation.conversation_id,
                                 sequence->num_computed_tokens, sequence->num_tokens(),
                                 ids_of(cache.kv(), sequence->memory.blocks), index(sequence->memory.state)});
    }
    return view;
}

std::string cache_text(const CacheView& view) {
    const auto holders = holders_of_blocks(view);
    std::string text = fmt::format("cache before step {}: {} of {} blocks, {} of {} state rows\n", view.step,
                                   view.used_blocks, view.num_blocks, view.used_state_rows, view.num_state_rows);
    Table heads({"head", "kind", "tokens", "blocks", "shared", "row", "names"});
    for (const ShownHead& head : view.heads) {
        heads.add_row({fmt::format("{}", head.id), head.kind, fmt::format("{}", head.length), ranges(head.blocks),
                       fmt::format("{}", num_shared(head.blocks, holders)), row_text(head.state),
                       fmt::format("{}", fmt::join(head.names, ", "))});
    }
    Table requests({"request", "conversation", "computed", "tokens", "blocks", "shared", "row"});
    for (const ShownRequest& request : view.requests) {
        requests.add_row({fmt::format("{}", request.id), request.conversation, fmt::format("{}", request.num_computed),
                          fmt::format("{}", request.num_tokens), ranges(request.blocks),
                          fmt::format("{}", num_shared(request.blocks, holders)), row_text(request.state)});
    }
    return text + heads.to_string() + requests.to_string();
}

std::string cache_graph(const CacheView& view) {
    std::string text = "digraph cache {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n";
    const auto add_blocks = [&](const std::string& owner, const std::vector<int32_t>& blocks, int32_t state) {
        for (const int32_t block : blocks) text += fmt::format("  {} -> \"block {}\";\n", owner, block);
        if (state >= 0) text += fmt::format("  {} -> \"row {}\";\n", owner, state);
    };
    for (const ShownHead& head : view.heads) {
        const std::string node = fmt::format("\"head {}\"", head.id);
        text += fmt::format("  {} [label=\"head {}\\n{} {}\"];\n", node, head.id, head.kind, head.length);
        for (const std::string& each : head.names)
            text += fmt::format("  \"name {}\" -> {} [style=bold];\n", quoted(each), node);
        add_blocks(node, head.blocks, head.state);
    }
    for (const ShownRequest& request : view.requests) {
        const std::string node = fmt::format("\"request {}\"", request.id);
        text += fmt::format("  {} [style=rounded, label=\"request {}\\n{}\"];\n", node, request.id,
                            quoted(request.conversation));
        add_blocks(node, request.blocks, request.state);
    }
    return text + "}\n";
}

std::string cache_svg(const CacheView& view) {
    constexpr int kCell = 9;
    constexpr int kLabel = 300;
    constexpr int kRow = 14;
    const auto holders = holders_of_blocks(view);
    const auto num_rows = static_cast<int64_t>(view.heads.size() + view.requests.size());
    std::string text = svg_begin(kLabel + kCell * (view.num_blocks + 1), static_cast<int>(kRow * (num_rows + 1)));
    text += fmt::format("<title>cache before step {}</title>\n", view.step);
    int y = kRow;
    const auto add = [&](const std::string& label, const std::vector<int32_t>& blocks, const char* own) {
        text += svg_text(4, y, label);
        for (const int32_t block : blocks) {
            const int count = holders.at(block);
            text += fmt::format(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>block {}, held by "
                "{}</title></rect>\n",
                kLabel + kCell * int64_t{block}, y - kRow + 4, kCell - 1, kRow - 2, count > 1 ? "#123a6b" : own, block,
                count);
        }
        y += kRow;
    };
    for (const ShownHead& head : view.heads) {
        add(fmt::format("head {} {} {} {}", head.id, head.kind, head.length, fmt::join(head.names, " ")), head.blocks,
            "#8fb8e8");
    }
    for (const ShownRequest& request : view.requests)
        add(fmt::format("request {} {}", request.id, request.conversation), request.blocks, "#f0a868");
    return text + "</svg>\n";
}

}  // namespace verbatim::tools
