#include "engine/base/digest.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

static_assert(std::endian::native == std::endian::little, "digests are defined over little-endian bytes");

namespace verbatim {

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Digester::Digester() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

void Digester::flush() { XXH3_128bits_update(state_.get(), held_.data(), std::exchange(num_held_, 0)); }

void Digester::bytes(const void* data, size_t num_bytes) {
    flush();
    XXH3_128bits_update(state_.get(), data, num_bytes);
}

void Digester::add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    bytes(text.data(), text.size());
}

void Digester::add(const Digest& digest) {
    add(digest.high);
    add(digest.low);
}

Digest Digester::digest() const {
    const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
    XXH3_copyState(state.get(), state_.get());
    XXH3_128bits_update(state.get(), held_.data(), num_held_);
    const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
    return {hash.high64, hash.low64};
}

}  // namespace verbatim
