#include "kernels/cpu/packed_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "files/output_file.h"
#include "files/regular_file.h"

namespace verbatim::cpu {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the file is written as memory lies");

constexpr int64_t kHeaderBytes = 4096;    // aligns the pairs to a page
constexpr int64_t kChunkBytes = 1 << 20;  // digested at a time
constexpr uint32_t kVersion = 2;          // of the format: header, pairs, panels, runs and int8 panels
constexpr std::array<char, 16> kMagic = {"verbatim packed"};

struct Header {
    std::array<char, 16> magic = kMagic;
    uint32_t version = kVersion;
    uint32_t canonical = 0;  // 1: every matrix of the source was canonical
    uint32_t format = 0;     // WeightFormat
    uint32_t unused = 0;
    int64_t num_pairs = 0;
    int64_t num_repacked_bytes = 0;
    Digest source;
    Digest content;  // of the fields above, the pairs and the repacked blocks
};
static_assert(std::has_unique_object_representations_v<Header> && sizeof(Header) <= kHeaderBytes);

int64_t num_chunks(std::span<const std::byte> bytes) {
    return (static_cast<int64_t>(bytes.size()) + kChunkBytes - 1) / kChunkBytes;
}

std::span<const std::byte> chunk(std::span<const std::byte> bytes, int64_t i) {
    const auto first = static_cast<size_t>(i * kChunkBytes);
    return bytes.subspan(first, std::min(static_cast<size_t>(kChunkBytes), bytes.size() - first));
}

Digest digest_of(std::span<const std::byte> bytes) {
    Digester digester;
    digester.bytes(bytes.data(), bytes.size());
    return digester.digest();
}

// Digest of the header's other fields and the chunks' digests.
Digest content_digest(const Header& header, std::span<const Digest> chunks) {
    Digester digester;
    digester.bytes(&header, offsetof(Header, content));
    for (const Digest& one : chunks) digester.add(one);
    return digester.digest();
}

struct PackedFile {
    RegularFile file;
    Header header;
};

// None: no such file, or another version.
Result<std::optional<PackedFile>> open(const fs::path& path) {
    std::error_code ignored;
    if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found) return std::nullopt;
    ASSIGN_OR_RETURN(RegularFile file, RegularFile::open(path));
    Header header;
    const int64_t size = file.state().num_bytes;
    if (size < kHeaderBytes) return error("{}: has {} bytes: no file of packed weights", path.string(), size);
    RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(&header, 1))));
    if (header.magic != kMagic)
        return error("{}: no file of packed weights: it is left as it is, name another", path.string());
    if (header.version != kVersion) return std::nullopt;
    const int64_t pair_bytes = size - kHeaderBytes - header.num_repacked_bytes;
    if (header.num_repacked_bytes < 0 || pair_bytes < 0 || pair_bytes % int64_t{sizeof(Pair)} != 0 ||
        header.num_pairs != pair_bytes / int64_t{sizeof(Pair)})
        return error(
            "{}: has {} bytes for {} packed pairs and {} bytes of repacked blocks: truncated or damaged, remove it to "
            "have it made again",
            path.string(), size, header.num_pairs, header.num_repacked_bytes);
    return PackedFile{std::move(file), header};
}

// Of the pairs' chunks, then of the repacked blocks'. `prepare` is called with each chunk before, on any thread.
template <typename Prepare>
Result<std::vector<Digest>> chunk_digests(std::span<const std::byte> pairs, std::span<const std::byte> repacked,
                                          reference::WorkerPool& pool, const Prepare& prepare) {
    const int64_t of_pairs = num_chunks(pairs);
    std::vector<Digest> digests(static_cast<size_t>(of_pairs + num_chunks(repacked)));
    std::mutex mutex;
    Status status;  // of the first error
    pool.for_each(std::ssize(digests), [&](int64_t i) {
        const std::span<const std::byte> part = i < of_pairs ? chunk(pairs, i) : chunk(repacked, i - of_pairs);
        Status prepared = prepare(part);
        if (prepared) digests[static_cast<size_t>(i)] = digest_of(part);
        const std::lock_guard lock(mutex);
        if (status) status = std::move(prepared);
    });
    RETURN_IF_ERROR(status);
    return digests;
}

Result<PackedWeights::Kept> read_kept(const PackedFile& packed, reference::WorkerPool& pool) {
    const std::string name = packed.file.path().string();
    packed.file.read_ahead();
    ASSIGN_OR_RETURN(MovingFile memory, MovingFile::map(packed.file));
    const auto pair_bytes = static_cast<size_t>(packed.header.num_pairs) * sizeof(Pair);
    const std::span<const std::byte> pairs = memory.bytes().subspan(kHeaderBytes, pair_bytes);
    const std::span<const std::byte> repacked = memory.bytes().subspan(kHeaderBytes + pair_bytes);
    CHECK(reinterpret_cast<uintptr_t>(repacked.data()) % AlignedArray<std::byte>::kAlignment == 0,
          "{} pairs are no whole panels", packed.header.num_pairs);
    ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                     chunk_digests(pairs, repacked, pool, [&](std::span<const std::byte> part) -> Status {
                         if (Status there = memory.populate(part); !there)
                             return error("{}: {}", name, there.error().message);
                         return {};
                     }));
    if (content_digest(packed.header, digests) != packed.header.content)
        return error(
            "{}: its packed weights have another digest than when they were written: damaged, remove it to have it "
            "made again",
            name);
    const std::span of_pairs(reinterpret_cast<const Pair*>(pairs.data()), static_cast<size_t>(packed.header.num_pairs));
    return PackedWeights::Kept{std::move(memory), of_pairs, repacked};
}

Status write(const fs::path& path, const reference::Model& model, const PackedWeights& weights,
             reference::WorkerPool& pool) {
    const std::span<const std::byte> pairs = std::as_bytes(weights.pairs());
    const std::span<const std::byte> repacked = weights.repacked();
    ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                     chunk_digests(pairs, repacked, pool, [](std::span<const std::byte>) { return Status(); }));
    Header header;
    header.canonical = model.canonical ? 1 : 0;
    header.format = static_cast<uint32_t>(weights.format());
    header.num_pairs = std::ssize(weights.pairs());
    header.num_repacked_bytes = std::ssize(repacked);
    header.source = *model.source;
    header.content = content_digest(header, digests);
    std::vector<std::byte> first(kHeaderBytes);
    std::memcpy(first.data(), &header, sizeof(header));
    ASSIGN_OR_RETURN(std::optional<files::OutputFile> file, files::OutputFile::create_unless_written(path));
    if (!file) return {};  // by another program that starts just now
    for (const std::span<const std::byte> part : {std::span<const std::byte>(first), pairs, repacked})
        RETURN_IF_ERROR(file->write(part));
    return file->finish();
}

}  // namespace

Result<std::optional<Digest>> known_canonical(const fs::path& path) {
    ASSIGN_OR_RETURN(const std::optional<PackedFile> packed, open(path));
    return packed && packed->header.canonical == 1 ? std::optional(packed->header.source) : std::nullopt;
}

Result<KeptWeights> keep_packed(const fs::path& path, const reference::Model& model, reference::WorkerPool& pool,
                                WeightFormat format) {
    CHECK(model.source.has_value(), "only a checkpoint's packed weights are kept");
    CHECK(format != WeightFormat::kInt8, "weights that are rounded to int8 are packed each time");
    ASSIGN_OR_RETURN(const std::optional<PackedFile> packed, open(path));
    if (packed && packed->header.source == *model.source && packed->header.format == static_cast<uint32_t>(format)) {
        const PackedWeights::Sizes wanted = PackedWeights::sizes_of(model.config, model.weights, format);
        const PackedWeights::Sizes got{packed->header.num_pairs, packed->header.num_repacked_bytes};
        if (got != wanted)
            return error(
                "{}: has {} packed pairs and {} bytes of repacked blocks, the model has {} and {}: damaged, remove it "
                "to have it made again",
                path.string(), got.num_pairs, got.num_repacked_bytes, wanted.num_pairs, wanted.num_repacked_bytes);
        ASSIGN_OR_RETURN(PackedWeights::Kept kept, read_kept(*packed, pool));
        return KeptWeights{PackedWeights(model.config, model.weights, format, std::move(kept)), true};
    }
    PackedWeights weights(model.config, model.weights, pool, format);
    RETURN_IF_ERROR(write(path, model, weights, pool));
    return KeptWeights{std::move(weights), false};
}

}  // namespace verbatim::cpu
