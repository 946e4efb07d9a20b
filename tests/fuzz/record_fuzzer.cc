// Any bytes as a record: refused, or entries that survive being written. A frame's checksum and compression would keep
// a fuzzer out, so it also gives what lies inside them: the head's text, or the entries' bytes.
#include <xxhash.h>
#include <zstd.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "reference/records/codec.h"
#include "reference/records/description_json.h"
#include "reference/records/record_file.h"

namespace verbatim::records {
namespace {

constexpr uint32_t kHeadFrame = 1;
constexpr uint32_t kEntriesFrame = 2;

void add_frame(std::string& file, uint32_t type, const std::string& payload) {
    const auto add = [&file](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
    add(static_cast<uint32_t>(payload.size()));
    add(type);
    add(uint64_t{XXH3_64bits_withSeed(payload.data(), payload.size(), type)});
    file += payload;
}

const std::string& head_of_ours() {
    static const std::string kHead = [] {
        RunDescription run;
        run.vocab_size = 300;
        run.engine.cache.pools.num_blocks = 4;
        run.engine.cache.pools.num_state_rows = 4;
        return write_head(run);
    }();
    return kHead;
}

std::string compressed(std::string_view bytes) {
    const auto count = static_cast<uint32_t>(bytes.size());
    std::string payload(sizeof count + ZSTD_compressBound(bytes.size()), '\0');
    std::memcpy(payload.data(), &count, sizeof count);
    const size_t size =
        ZSTD_compress(payload.data() + sizeof count, payload.size() - sizeof count, bytes.data(), bytes.size(), 1);
    CHECK(ZSTD_isError(size) == 0);
    payload.resize(sizeof count + size);
    return payload;
}

template <typename T>
void expect_round_trip(const T& value, TokenStore& store) {
    const auto shape = parse_shape(shape_of<T>());
    CHECK(shape.has_value());
    const std::vector<std::byte> bytes = encode(value);
    const auto again = decode<T>(*shape, bytes, store);
    CHECK(again.has_value(), "{}", again ? "" : again.error().message);
    CHECK(encode(*again) == bytes);
}

void check_file(const std::string& file) {
    const auto record = read_record_bytes("fuzz", std::as_bytes(std::span(file)));
    if (!record) {
        CHECK(!record.error().message.empty());
        return;
    }
    CHECK(record->end.has_value() || !record->cut_off.empty());
    for (const Entry& entry : record->entries) {
        std::visit([&](const auto& value) { expect_round_trip(value, *record->store); }, entry);
    }
}

void check(std::string_view input) {
    if (input.empty()) return;
    const std::string_view rest = input.substr(1);
    std::string file = "VERBATIM RECORD\n";
    switch (static_cast<uint8_t>(input[0]) % 4) {
        case 0: check_file(std::string(rest)); return;
        case 1: add_frame(file, kHeadFrame, std::string(rest)); break;
        case 2:
            add_frame(file, kHeadFrame, head_of_ours());
            add_frame(file, kEntriesFrame, std::string(rest));
            break;
        default: add_frame(file, kHeadFrame, head_of_ours()); add_frame(file, kEntriesFrame, compressed(rest));
    }
    check_file(file);
}

}  // namespace
}  // namespace verbatim::records

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::records::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
