// Any bytes as a GGUF file: refused, or tensors that lie inside the file one behind the other, and metadata of which a
// configuration, a tokenizer and a chat template come, or errors. What can be written again says the same again.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "reference/loader/gguf.h"
#include "reference/loader/gguf_config.h"
#include "server/text/gguf_text.h"

namespace verbatim::reference {
namespace {

template <typename T>
void check_answer(const Result<T>& answer) {
    CHECK(answer.has_value() || !answer.error().message.empty());
}

void check_texts(const GgufMetadata& metadata) {
    for (const auto& [key, value] : metadata) CHECK(value_text(value).size() < 400, "'{}' is long in errors", key);
    check_answer(text::gguf_tokenizer(metadata, "file"));
    const auto texts = text::gguf_texts(metadata, "file");
    check_answer(texts);
    if (texts) CHECK(std::ranges::is_sorted(texts->stop_tokens));
}

std::string_view chars_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_written_again(const GgufContents& contents) {
    std::vector<GgufLayout> layouts;
    for (const GgufTensor& tensor : contents.tensors)
        layouts.push_back({std::string(tensor.name), tensor.shape, tensor.format});
    std::string again = gguf_prefix({}, layouts);
    for (const GgufTensor& tensor : contents.tensors) {
        again += chars_of(tensor.bytes);
        again.resize((again.size() + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment);
    }
    const auto reread = parse_gguf(std::as_bytes(std::span(again)), "again");
    CHECK(reread.has_value(), "{}", reread.error().message);
    CHECK_EQ(reread->tensors.size(), contents.tensors.size());
    for (size_t i = 0; i < contents.tensors.size(); ++i) {
        const GgufTensor& one = contents.tensors[i];
        const GgufTensor& other = reread->tensors[i];
        CHECK(one.name == other.name && one.shape == other.shape && one.format == other.format);
        CHECK(chars_of(one.bytes) == chars_of(other.bytes));
    }
}

void check_file(std::span<const std::byte> bytes) {
    const auto contents = parse_gguf(bytes, "file");
    check_answer(contents);
    if (!contents) return;
    const std::byte* behind = bytes.data();
    for (const GgufTensor& tensor : contents->tensors) {
        CHECK(tensor.bytes.data() >= behind &&
              tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
        behind = tensor.bytes.data() + tensor.bytes.size();
    }
    check_texts(contents->metadata);
    check_written_again(*contents);
    GgufFile file{.files = {}, .metadata = contents->metadata, .tensors = {}};
    for (const GgufTensor& tensor : contents->tensors) file.tensors.emplace(tensor.name, tensor);
    check_answer(gguf_config(file, "file"));
}

}  // namespace
}  // namespace verbatim::reference

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::reference::check_file(std::as_bytes(std::span(data, size)));
    return 0;
}
