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
constexpr uint32_t kVersion = 1;          // of the format: header, pairs and panels
constexpr std::array<char, 16> kMagic = {"verbatim packed"};

struct Header {
    std::array<char, 16> magic = kMagic;
    uint32_t version = kVersion;
    uint32_t canonical = 0;  // 1: every matrix of the source was canonical
    int64_t num_pairs = 0;
    Digest source;
    Digest content;  // of the fields above and the pairs
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
    if ((size - kHeaderBytes) % int64_t{sizeof(Pair)} != 0 ||
        header.num_pairs != (size - kHeaderBytes) / int64_t{sizeof(Pair)})
        return error("{}: has {} bytes for {} packed pairs: truncated or damaged, remove it to have it made again",
                     path.string(), size, header.num_pairs);
    return PackedFile{std::move(file), header};
}

Status read_pairs(const PackedFile& packed, std::span<std::byte> pairs, reference::WorkerPool& pool) {
    std::vector<Digest> chunks(static_cast<size_t>(num_chunks(pairs)));
    std::mutex mutex;
    Status status;  // of the first error
    const auto read_chunk = [&](int64_t i) {
        const std::span<std::byte> part = chunk(pairs, i);
        if (Status read = packed.file.read(kHeaderBytes + i * kChunkBytes, part); !read) {
            const std::lock_guard lock(mutex);
            if (status) status = std::move(read);
        }
        chunks[static_cast<size_t>(i)] = digest_of(part);
    };
    pool.for_each((num_chunks(pairs) + kPageChunks - 1) / kPageChunks, [&](int64_t page) {
        const int64_t first = page * kPageChunks;
        for (int64_t i = first; i < std::min(first + kPageChunks, num_chunks(pairs)); ++i) read_chunk(i);
    });
    RETURN_IF_ERROR(std::move(status));
    if (content_digest(packed.header, chunks) == packed.header.content) return {};
    return error(
        "{}: its packed weights have another digest than when they were written: damaged, remove it to have it made "
        "again",
        packed.file.path().string());
}

Status write(const fs::path& path, const reference::Model& model, std::span<const std::byte> pairs,
             reference::WorkerPool& pool) {
    std::vector<Digest> chunks(static_cast<size_t>(num_chunks(pairs)));
    pool.for_each(num_chunks(pairs), [&](int64_t i) { chunks[static_cast<size_t>(i)] = digest_of(chunk(pairs, i)); });
    Header header;
    header.canonical = model.canonical ? 1 : 0;
    header.num_pairs = static_cast<int64_t>(pairs.size() / sizeof(Pair));
    header.source = *model.source;
    header.content = content_digest(header, chunks);
    std::vector<std::byte> first(kHeaderBytes);
    std::memcpy(first.data(), &header, sizeof(header));
    ASSIGN_OR_RETURN(std::optional<files::OutputFile> file, files::OutputFile::create_unless_written(path));
    if (!file) return {};  // by another program that starts just now
    RETURN_IF_ERROR(file->write(first));
    RETURN_IF_ERROR(file->write(pairs));
    return file->finish();
}

}  // namespace

Result<std::optional<Digest>> known_canonical(const fs::path& path) {
    ASSIGN_OR_RETURN(const std::optional<PackedFile> packed, open(path));
    return packed && packed->header.canonical == 1 ? std::optional(packed->header.source) : std::nullopt;
}

Result<KeptWeights> keep_packed(const fs::path& path, const reference::Model& model, reference::WorkerPool& pool) {
    CHECK(model.source.has_value(), "only a checkpoint's packed weights are kept");
    ASSIGN_OR_RETURN(const std::optional<PackedFile> packed, open(path));
    if (packed && packed->header.source == *model.source) {
        const int64_t num_pairs = PackedWeights::num_pairs_of(model.config, model.weights);
        if (packed->header.num_pairs != num_pairs)
            return error("{}: has {} packed pairs, the model has {}: damaged, remove it to have it made again",
                         path.string(), packed->header.num_pairs, num_pairs);
        packed->file.read_ahead();
        AlignedArray<Pair> pairs(num_pairs);
        RETURN_IF_ERROR(read_pairs(*packed, std::as_writable_bytes(std::span(pairs.data(), num_pairs)), pool));
        return KeptWeights{PackedWeights(model.config, model.weights, std::move(pairs)), true};
    }
    PackedWeights weights(model.config, model.weights, pool);
    RETURN_IF_ERROR(write(path, model, std::as_bytes(weights.pairs()), pool));
    return KeptWeights{std::move(weights), false};
}

}  // namespace verbatim::cpu
