// A tokenizer.json and, behind the first zero byte, a text: the file is refused, or the text becomes ids that are the
// tokenizer's own, the same ones every time, and back. "@BYTES@" in the file stands for the 256 entries of a byte
// vocabulary, which every file needs and no fuzzer finds.
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "server/text/byte_alphabet.h"
#include "server/text/decoder.h"
#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

constexpr std::string_view kBytes = "@BYTES@";

const std::string& byte_entries() {
    static const std::string kEntries = [] {
        std::string entries;
        for (int byte = 0; byte < 256; ++byte) {
            const std::string symbol = to_byte_alphabet(std::string(1, static_cast<char>(byte)));
            const std::string escaped = symbol == "\"" || symbol == "\\" ? "\\" + symbol : symbol;
            entries += (byte == 0 ? "\"" : ", \"") + escaped + "\": " + std::to_string(byte);
        }
        return entries;
    }();
    return kEntries;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

void check_ids(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options, bool keeps_all) {
    WordCache cache;
    const auto ids = tokenizer.encode(text, options, cache);
    if (!ids) return;  // no UTF-8, or a regex that costs too much
    CHECK(*tokenizer.encode(text, options, cache) == *ids, "another encoding the second time");
    std::string bytes;
    for (const TokenId id : *ids) {
        CHECK(tokenizer.has(id), "id {} of {}", id, tokenizer.num_ids());
        bytes += tokenizer.bytes_of(id);
    }
    if (keeps_all && !options.add_special) CHECK(bytes == text, "'{}' became '{}'", text, bytes);
    CHECK(!first_invalid_utf8(decode(tokenizer, *ids)));
}

void check_input(std::string_view input) {
    const size_t end = input.find('\0');
    std::string json(input.substr(0, end));
    const std::string_view text = end == std::string_view::npos ? "" : input.substr(end + 1);
    if (const size_t at = json.find(kBytes); at != std::string::npos) json.replace(at, kBytes.size(), byte_entries());
    const auto tokenizer = parse_tokenizer(json, "tokenizer.json");
    if (!tokenizer) {
        CHECK(!tokenizer.error().message.empty());
        return;
    }
    // What these parts leave out or change is theirs to say; a name may be spelt with escapes.
    const bool keeps_all = !contains(json, "NFC") && !contains(json, "Removed") && !contains(json, "\\u");
    for (const bool add : {true, false}) {
        for (const bool parse : {true, false}) check_ids(*tokenizer, text, {add, parse}, keeps_all);
    }
}

}  // namespace
}  // namespace verbatim::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::text::check_input({reinterpret_cast<const char*>(data), size});
    return 0;
}
