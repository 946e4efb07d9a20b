// Any text as model.safetensors.index.json: refused, or shards that are plain names in the same folder.
#include <filesystem>

#include "engine/base/check.h"
#include "reference/loader/checkpoint_files.h"

namespace verbatim::reference {
namespace {

void check_text(std::string_view text) {
    const auto index = parse_index(text, "index");
    if (!index) return;
    CHECK(!index->empty());
    for (const auto& [tensor, shard] : *index) {
        const std::filesystem::path path = std::filesystem::path("/folder") / shard;
        CHECK(path.parent_path() == "/folder" && path.lexically_normal() == path, "{}", shard);
    }
}

}  // namespace
}  // namespace verbatim::reference

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::reference::check_text({reinterpret_cast<const char*>(data), size});
    return 0;
}
