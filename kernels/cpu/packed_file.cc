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
constexpr int64_t kChunkBytes = 1 << 20;  // read and digested at a time, while in the L2 cache
constexpr int64_t kPageChunks = 2;        // per thread: a large page, which two threads would both clear
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

template <typename Byte>
std::span<Byte> chunk(std::span<Byte> bytes, int64_t i) {
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

// Fills `bytes` from place `begin` of the file on, and puts each chunk's digest in `digests`.
Status read_chunks(const RegularFile& file, int64_t begin, std::span<std::byte> bytes, std::span<Digest> digests,
                   reference::WorkerPool& pool) {
    std::mutex mutex;
    Status status;  // of the first error
    const auto read_chunk = [&](int64_t i) {
        const std::span<std::byte> part = chunk(bytes, i);
        if (Status read = file.read(begin + i * kChunkBytes, part); !read) {
            const std::lock_guard lock(mutex);
            if (status) status = std::move(read);
        }
        digests[static_cast<size_t>(i)] = digest_of(part);
    };
    pool.for_each((num_chunks(bytes) + kPageChunks - 1) / kPageChunks, [&](int64_t page) {
        const int64_t first = page * kPageChunks;
        for (int64_t i = first; i < std::min(first + kPageChunks, num_chunks(bytes)); ++i) read_chunk(i);
    });
    return status;
}

Result<PackedWeights::Arrays> read_arrays(const PackedFile& packed, reference::WorkerPool& pool) {
    packed.file.read_ahead();
    PackedWeights::Arrays arrays{AlignedArray<Pair>(packed.header.num_pairs),
                                 AlignedArray<std::byte>(packed.header.num_repacked_bytes)};
    const auto pairs = std::as_writable_bytes(std::span(arrays.pairs.data(), arrays.pairs.size()));
    const std::span repacked(arrays.repacked.data(), arrays.repacked.size());
    std::vector<Digest> digests(static_cast<size_t>(num_chunks(pairs) + num_chunks(repacked)));
    const std::span of_pairs = std::span(digests).first(static_cast<size_t>(num_chunks(pairs)));
    const std::span of_repacked = std::span(digests).subspan(of_pairs.size());
    RETURN_IF_ERROR(read_chunks(packed.file, kHeaderBytes, pairs, of_pairs, pool));
    RETURN_IF_ERROR(read_chunks(packed.file, kHeaderBytes + std::ssize(pairs), repacked, of_repacked, pool));
    if (content_digest(packed.header, digests) == packed.header.content) return arrays;
    return error(
        "{}: its packed weights have another digest than when they were written: damaged, remove it to have it made "
        "again",
        packed.file.path().string());
}

Status write(const fs::path& path, const reference::Model& model, const PackedWeights& weights,
             reference::WorkerPool& pool) {
    const std::span<const std::byte> pairs = std::as_bytes(weights.pairs());
    const std::span<const std::byte> repacked = weights.repacked();
    std::vector<Digest> digests(static_cast<size_t>(num_chunks(pairs) + num_chunks(repacked)));
    pool.for_each(std::ssize(digests), [&](int64_t i) {
        const bool is_pair = i < num_chunks(pairs);
        digests[static_cast<size_t>(i)] = digest_of(is_pair ? chunk(pairs, i) : chunk(repacked, i - num_chunks(pairs)));
    });
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
        ASSIGN_OR_RETURN(PackedWeights::Arrays arrays, read_arrays(*packed, pool));
        return KeptWeights{PackedWeights(model.config, model.weights, format, std::move(arrays)), true};
    }
    PackedWeights weights(model.config, model.weights, pool, format);
    RETURN_IF_ERROR(write(path, model, weights, pool));
    return KeptWeights{std::move(weights), false};
}

}  // namespace verbatim::cpu
