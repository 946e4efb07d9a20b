// Any bytes as a safetensors file: refused, or tensors that lie inside the file, cover its data, and survive being
// written.
#include <cstring>

#include "engine/base/check.h"
#include "reference/loader/safetensors.h"

namespace verbatim::reference {
namespace {

void check_file(std::span<const std::byte> file) {
    const auto entries = parse_safetensors(file, "file");
    if (!entries) return;
    std::vector<TensorLayout> layouts;
    std::string data;
    for (const TensorEntry& entry : *entries) {
        CHECK(entry.bytes.empty() || entry.bytes.data() >= file.data());
        CHECK(entry.bytes.empty() || entry.bytes.data() + entry.bytes.size() <= file.data() + file.size());
        layouts.push_back({entry.name, entry.dtype, entry.shape});
        data.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
    }
    const std::string again = safetensors_prefix(layouts) + data;
    const auto reread = parse_safetensors(std::as_bytes(std::span(again)), "again");
    CHECK(reread.has_value(), "{}", reread.error().message);
    CHECK_EQ(reread->size(), entries->size());
}

}  // namespace
}  // namespace verbatim::reference

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::reference::check_file(std::as_bytes(std::span(data, size)));
    return 0;
}
