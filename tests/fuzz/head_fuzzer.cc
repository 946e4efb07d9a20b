// Any bytes as a head's file (PUT /v1/conversations/ID/head): refused, or a head that is written again with the same
// bytes. Every byte enters a checksum, so an input whose first byte is odd has the checksums of its parts made right:
// what stands behind it is the number of tokens and the bytes of a head, of which the program writes the file.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "reference/loader/head_file.h"

namespace verbatim::reference {
namespace {

const StateTensors& tensors() {
    static const StateTensors kTensors({{0, StateKind::kSsm, StatePer::kSequence, StateDtype::kFloat32, {2, 3}},
                                        {1, StateKind::kK, StatePer::kToken, StateDtype::kBf16, {1, 4}},
                                        {1, StateKind::kV, StatePer::kToken, StateDtype::kBf16, {1, 4}}});
    return kTensors;
}

std::string content_of(const HeadInfo& info, const StateTensors& list, std::span<const std::byte> bytes) {
    std::string content = head_file_prefix(info, list, bytes);
    content.append(reinterpret_cast<const char*>(info.tokens.data()), info.tokens.size() * sizeof(TokenId));
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return content;
}

void check_file(const std::string& content) {
    const auto file = HeadFile::parse(content, "head");
    if (!file) {
        CHECK(!file.error().message.empty());
        return;
    }
    const int64_t row = file->tensors().num_bytes(StatePer::kSequence);
    const int64_t token = file->tensors().num_bytes(StatePer::kToken);
    CHECK_EQ(std::ssize(file->bytes()), row + token * file->info().length());
    const auto again = HeadFile::parse(content_of(file->info(), file->tensors(), file->bytes()), "again");
    CHECK(again.has_value(), "{}", again.error().message);
    CHECK(again->info().tokens == file->info().tokens && again->info().salt == file->info().salt);
    CHECK(std::memcmp(again->bytes().data(), file->bytes().data(), file->bytes().size()) == 0);
}

// A head of ours, with the input's tokens, texts and bytes; of it, one byte may be another.
void check_made(std::string_view input) {
    const auto next = [&input] {
        const auto byte = input.empty() ? uint8_t{0} : static_cast<uint8_t>(input[0]);
        input.remove_prefix(input.empty() ? 0 : 1);
        return byte;
    };
    HeadInfo info{.model = std::string(next() % 70, 'a'), .numerics = "exact/1", .digest = {1, 2}, .base = {}};
    for (int tokens = next() % 8 + 1; tokens > 0; --tokens) info.tokens.push_back(next());
    if (next() % 2 == 0) {  // a salt is UTF-8: the server takes no other
        std::string& salt = info.salt.emplace();
        for (int size = next() % 40; size > 0; --size) salt += static_cast<char>(' ' + next() % 90);
    }
    const int64_t size =
        tensors().num_bytes(StatePer::kSequence) + tensors().num_bytes(StatePer::kToken) * info.length();
    const size_t place = next() * size_t{256} + next();
    const uint8_t change = next();
    std::string bytes(static_cast<size_t>(size), '\0');
    input.copy(bytes.data(), bytes.size());
    std::string content = content_of(info, tensors(), std::as_bytes(std::span(bytes)));
    const bool is_changed = change != 0 && place < content.size();
    if (is_changed) content[place] = static_cast<char>(content[place] ^ change);
    const auto file = HeadFile::parse(content, "made");
    CHECK(file.has_value() != is_changed, "byte {} of {}, changed by {:02x}: {}", place, content.size(), change,
          file ? "read" : file.error().message);
    check_file(content);
}

void check(std::string_view input) {
    if (input.empty()) return;
    const std::string_view rest = input.substr(1);
    if (static_cast<uint8_t>(input[0]) % 2 == 0)
        check_file(std::string(rest));
    else
        check_made(rest);
}

}  // namespace
}  // namespace verbatim::reference

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::reference::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
