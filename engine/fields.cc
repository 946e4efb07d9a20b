#include "engine/fields.h"

#include "engine/base/check.h"

namespace verbatim {

Status FieldReader::end() const {
    if (at_ == bytes_.size()) return {};
    return error("{} bytes are left after {}", bytes_.size() - at_, at_);
}

Status FieldReader::copy(void* out, size_t num_bytes) {
    CHECK_LE(at_, bytes_.size());
    if (num_bytes > bytes_.size() - at_) {
        return error("{}: {} bytes are wanted, {} are left", where(), num_bytes, bytes_.size() - at_);
    }
    if (num_bytes > 0) std::memcpy(out, bytes_.data() + at_, num_bytes);
    at_ += num_bytes;
    return {};
}

Status FieldReader::read_count(size_t& count, size_t least_bytes) {
    CHECK_GT(least_bytes, 0u);
    uint64_t wide = 0;
    RETURN_IF_ERROR(read(wide));
    if (wide > (bytes_.size() - at_) / least_bytes) {
        return error("{}: {} elements in the {} bytes that are left", where(), wide, bytes_.size() - at_);
    }
    count = static_cast<size_t>(wide);
    return {};
}

std::string FieldReader::where() const { return fmt::format("byte {}, {}", at_, field_); }

}  // namespace verbatim
