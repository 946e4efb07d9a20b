#include "tests/cuda_runtime/fat_binary.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace verbatim::cuda::strict_runtime {
namespace {

// As nvcc 12 and 13 write them; the rest of an entry's header is not looked at.
struct Registered {
    uint32_t magic;
    uint32_t version;
    const std::byte* binary;
};
struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes;  // behind the header
};
struct Entry {
    uint16_t kind;  // 1: PTX, 2: ELF
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;  // behind the header
};
constexpr uint32_t kRegisteredMagic = 0x466243B1;
constexpr uint32_t kBinaryMagic = 0xBA55ED50;
constexpr uint16_t kElf = 2;
constexpr std::string_view kSharedSection = ".nv.shared.";

template <typename T>
T at(const std::byte* place) {
    T value;
    std::memcpy(&value, place, sizeof(value));
    return value;
}

void add_shared(const std::byte* elf, std::map<std::string, size_t>& sizes) {
    const auto header = at<Elf64_Ehdr>(elf);
    const auto section = [&](size_t i) { return at<Elf64_Shdr>(elf + header.e_shoff + i * sizeof(Elf64_Shdr)); };
    const std::byte* names = elf + section(header.e_shstrndx).sh_offset;
    for (size_t i = 0; i < header.e_shnum; ++i) {
        const Elf64_Shdr one = section(i);
        const std::string_view name = reinterpret_cast<const char*>(names + one.sh_name);
        if (!name.starts_with(kSharedSection)) continue;
        size_t& size = sizes[std::string(name.substr(kSharedSection.size()))];
        size = std::max<size_t>(size, one.sh_size);
    }
}

}  // namespace

std::map<std::string, size_t> static_shared_of(const void* registered) {
    std::map<std::string, size_t> sizes;
    const auto wrapper = at<Registered>(static_cast<const std::byte*>(registered));
    if (wrapper.magic != kRegisteredMagic) return sizes;
    const auto header = at<Header>(wrapper.binary);
    if (header.magic != kBinaryMagic) return sizes;
    const std::byte* place = wrapper.binary + header.header_bytes;
    for (const std::byte* end = place + header.bytes; place < end;) {
        const auto entry = at<Entry>(place);
        const std::byte* content = place + entry.header_bytes;
        if (entry.kind == kElf && std::memcmp(content, ELFMAG, SELFMAG) == 0) add_shared(content, sizes);
        place = content + entry.bytes;
    }
    return sizes;
}

}  // namespace verbatim::cuda::strict_runtime
