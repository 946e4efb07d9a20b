#include "kernels/simt/source_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/simt/ptx_copies.h"
#include "kernels/simt/ptx_operands.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {
namespace {

constexpr uint32_t kMagic = 0x7E4502A9;
constexpr uint32_t kMostRank = 5;
constexpr size_t kBytesOfVector = 16;

// What is in a CUtensorMap of 128 bytes.
struct TensorMap {
    uint32_t magic, rank;
    std::byte* address;
    uint64_t dims[kMostRank];         // the first one is contiguous
    uint64_t strides[kMostRank - 1];  // bytes, of the dimensions behind it
    uint16_t box[kMostRank];
    uint8_t element_bytes, swizzle_bytes;  // 16: none
};
static_assert(sizeof(TensorMap) <= 128);

// A piece of a box: where it is in shared and in device memory. Null: outside of the tensor.
struct Piece {
    std::byte* shared;
    std::byte* device;
    size_t num_bytes;
};

const TensorMap* map_at(const PtxThread& thread, const PtxOperand& operand) {
    const auto* const map = reinterpret_cast<const TensorMap*>(thread.value(operand));
    if (map != nullptr && map->magic == kMagic && map->rank == operand.coordinates.size()) return map;
    Emulator::current().found(FindingKind::kOutOfBounds,
                              fmt::format("an address is of no tensor map of {} dimensions that "
                                          "cuTensorMapEncodeTiled has made",
                                          operand.coordinates.size()));
    return nullptr;
}

size_t bytes_of_box(const TensorMap& map) {
    size_t count = map.element_bytes;
    for (uint32_t i = 0; i < map.rank; ++i) count *= map.box[i];
    return count;
}

class Box {
public:
    Box(const TensorMap& map, const PtxThread& thread, const std::vector<PtxOperand>& coordinates, uint32_t shared)
        : map_(map), shared_(shared) {
        for (const PtxOperand& one : coordinates) first_.push_back(static_cast<int32_t>(thread.value(one)));
    }

    // In vectors of 16 bytes, or in elements where the tensor ends within one.
    [[nodiscard]] std::vector<Piece> pieces() const {
        std::vector<Piece> all;
        const size_t row_bytes = size_t{map_.box[0]} * map_.element_bytes;
        const size_t rows = bytes_of_box(map_) / row_bytes;
        for (size_t row = 0; row < rows; ++row) {
            std::byte* const begin = row_begin(row);
            for (size_t at = 0; at < row_bytes; at += kBytesOfVector) add_vector(row * row_bytes, at, begin, all);
        }
        return all;
    }

private:
    // Where coordinate 0 of the row is; null: outside.
    [[nodiscard]] std::byte* row_begin(size_t row) const {
        std::byte* at = map_.address;
        for (uint32_t i = 1; i < map_.rank; ++i) {
            const int64_t coordinate = first_[i] + static_cast<int64_t>(row % map_.box[i]);
            row /= map_.box[i];
            if (coordinate < 0 || static_cast<uint64_t>(coordinate) >= map_.dims[i]) return nullptr;
            at += static_cast<uint64_t>(coordinate) * map_.strides[i - 1];
        }
        return at;
    }
    [[nodiscard]] bool is_inside(int64_t element) const {
        return element >= 0 && static_cast<uint64_t>(element) < map_.dims[0];
    }
    void add_vector(size_t row, size_t at, std::byte* begin, std::vector<Piece>& all) const {
        std::byte* const to =
            from_window(swizzled(shared_ + static_cast<uint32_t>(row + at), map_.swizzle_bytes), kBytesOfVector);
        if (to == nullptr) return;
        const auto size = static_cast<int64_t>(map_.element_bytes);
        const int64_t first = first_[0] + static_cast<int64_t>(at) / size;
        const int64_t count = static_cast<int64_t>(kBytesOfVector) / size;
        if (begin == nullptr || (is_inside(first) && is_inside(first + count - 1))) {
            all.push_back({to, begin == nullptr ? nullptr : begin + first * size, kBytesOfVector});
            return;
        }
        for (int64_t i = 0; i < count; ++i) {
            std::byte* const from = is_inside(first + i) ? begin + (first + i) * size : nullptr;
            all.push_back({to + i * size, from, map_.element_bytes});
        }
    }

    const TensorMap& map_;
    uint32_t shared_;
    std::vector<int64_t> first_;
};

constexpr size_t kBoxAlignment = 128;

// The shared memory of a box, which begins at a multiple of 128 bytes; null: it does not lie in one array, and found.
const SourceRange* shared_of_box(const TensorMap& map, uint32_t address) {
    std::byte* const begin = from_window(address, bytes_of_box(map));
    return begin == nullptr ? nullptr : checked_range(begin, bytes_of_box(map), kBoxAlignment, "copied");
}

// The tensor's element in device memory; null: the tensor that the map describes does not lie there, and found.
const SourceRange* device_of(const Piece& piece, const char* verb) {
    const SourceRange* const range = checked_range(piece.device, piece.num_bytes, 1, verb);
    if (range == nullptr && source.find(piece.device) == nullptr)
        Emulator::current().found(FindingKind::kOutOfBounds, "a tensor map's box is in no memory of the device");
    return range;
}

// A box of these pieces, whose shared memory is that of the running block from `mine` on, arrives at the target.
void copy_box(std::vector<Piece> pieces, const std::byte* mine, size_t num_bytes, const CopyTarget& target,
              cuda_source::Place where) {
    const std::optional<ArrivingCopy> copy = begin_copy(target.to, num_bytes, kBoxAlignment, target.barrier, where);
    if (!copy) return;
    const SourceRange& place = *copy->place;
    for (Piece& piece : pieces) {
        std::byte* const to = target.to + (piece.shared - mine);
        const size_t offset = place.offset_of(to);
        report(place.memory->write(offset, piece.num_bytes, copy->agent), place, to);
        piece.shared = copy->landing + (piece.shared - mine);
        if (piece.device == nullptr) continue;
        const SourceRange* const origin = device_of(piece, "copied");
        if (origin == nullptr) return;
        const size_t from = origin->offset_of(piece.device);
        report(origin->memory->read_for_copy(from, piece.num_bytes, copy->agent), *origin, piece.device);
        place.memory->carry_unwritten(offset, *origin->memory, from, piece.num_bytes);
    }
    Emulator::current().copy_until(*copy->barrier, static_cast<int64_t>(num_bytes), [pieces = std::move(pieces)] {
        for (const Piece& piece : pieces) {
            std::memset(piece.shared, 0, piece.num_bytes);
            if (piece.device != nullptr) std::memcpy(piece.shared, piece.device, piece.num_bytes);
        }
    });
}

}  // namespace

void tensor_copy_ptx(PtxThread& thread, const PtxInstruction& one) {
    const TensorMap* const map = map_at(thread, one.operands[1]);
    if (map == nullptr) return;
    const size_t num_bytes = bytes_of_box(*map);
    const auto address = static_cast<uint32_t>(thread.value(one.operands[0]));
    std::byte* const to = from_cluster_window(address, num_bytes);
    std::byte* const barrier = from_cluster_window(static_cast<uint32_t>(thread.value(one.operands[2])), 8);
    if (to == nullptr || barrier == nullptr) return;
    const uint32_t in_block = in_own_window(address);
    const std::vector<Piece> pieces = Box(*map, thread, one.operands[1].coordinates, in_block).pieces();
    constexpr size_t kMask = 3;
    for (const CopyTarget& target : targets_of_copy(thread, one, {to, barrier}, kMask))
        copy_box(pieces, from_window(in_block, num_bytes), num_bytes, target, thread.where);
}

void tensor_store_ptx(PtxThread& thread, const PtxInstruction& one) {
    const TensorMap* const map = map_at(thread, one.operands[0]);
    if (map == nullptr) return;
    const auto address = static_cast<uint32_t>(thread.value(one.operands[1]));
    const SourceRange* const origin = shared_of_box(*map, address);
    if (origin == nullptr) return;
    Emulator& emulator = Emulator::current();
    const Now agent = emulator.storing();
    std::vector<Piece> pieces = Box(*map, thread, one.operands[0].coordinates, address).pieces();
    std::erase_if(pieces, [](const Piece& piece) { return piece.device == nullptr; });
    for (const Piece& piece : pieces) {
        const SourceRange* const place = device_of(piece, "copied to");
        if (place == nullptr) return;
        report(origin->memory->read(origin->offset_of(piece.shared), piece.num_bytes, agent), *origin, piece.shared);
        report(place->memory->write(place->offset_of(piece.device), piece.num_bytes, agent), *place, piece.device);
    }
    emulator.store_later([pieces = std::move(pieces)] {
        for (const Piece& piece : pieces) std::memcpy(piece.device, piece.shared, piece.num_bytes);
    });
}

}  // namespace verbatim::simt

namespace verbatim::cuda_source {

// What the driver refuses.
bool encode_map(void* to, const MapOfTensor& tensor) {
    simt::TensorMap map{};
    constexpr size_t kVector = 16, kMostBox = 256;
    if (tensor.rank < 1 || tensor.rank > simt::kMostRank || tensor.element_bytes == 0) return false;
    if (reinterpret_cast<uintptr_t>(tensor.address) % kVector != 0) return false;
    map.magic = simt::kMagic;
    map.rank = tensor.rank;
    map.address = static_cast<std::byte*>(tensor.address);
    map.element_bytes = static_cast<uint8_t>(tensor.element_bytes);
    map.swizzle_bytes = static_cast<uint8_t>(tensor.swizzle_bytes);
    for (unsigned i = 0; i < tensor.rank; ++i) {
        if (tensor.dims[i] == 0 || tensor.box[i] == 0 || tensor.box[i] > kMostBox || tensor.steps[i] != 1) return false;
        if (i > 0 && (tensor.strides[i - 1] % kVector != 0 || tensor.strides[i - 1] == 0)) return false;
        map.dims[i] = tensor.dims[i];
        map.box[i] = static_cast<uint16_t>(tensor.box[i]);
        if (i > 0) map.strides[i - 1] = tensor.strides[i - 1];
    }
    const size_t row_bytes = tensor.box[0] * tensor.element_bytes;
    if (row_bytes % kVector != 0 || (tensor.swizzle_bytes > kVector && row_bytes > tensor.swizzle_bytes)) return false;
    std::memcpy(to, &map, sizeof map);
    return true;
}

}  // namespace verbatim::cuda_source
