// kernels/cpu/moving_file.h: owns a file's bytes in memory: mapped first, so that they are there at once, and moved to
// 2 MiB pages while they are in use, since 4 KiB pages are read up to a third slower on many systems.
//
//   V1  bytes() stay at their addresses and keep their values while a part of them moves: the mapping of a part is
//       replaced in one system call, and a thread that reads meanwhile sees the file's page or the copy
//   V2  where the system refuses memory or mappings, the rest stays mapped
// The file must be neither changed nor truncated before it has moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/base/result.h"
#include "files/regular_file.h"

namespace verbatim::cpu {

class MovingFile {
public:
    // Maps the whole file. Errors: it is empty, or the system refuses.
    static Result<MovingFile> map(const RegularFile& file);
    MovingFile(MovingFile&& other) noexcept;
    MovingFile& operator=(MovingFile&& other) noexcept;
    ~MovingFile();  // ends the move

    [[nodiscard]] std::span<const std::byte> bytes() const;
    // Brings the bytes to memory. Errors: the device fails, or the file has become shorter. REQUIRES: of bytes().
    [[nodiscard]] Status populate(std::span<const std::byte> part) const;
    // Begins to move all bytes, by a thread of low priority. Later calls have no effect.
    void start_move();
    // Until the move has ended. The bytes that have moved. REQUIRES: start_move().
    int64_t finish_move();

private:
    struct State;
    explicit MovingFile(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace verbatim::cpu
