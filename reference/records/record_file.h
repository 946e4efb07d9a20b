// reference/records/record_file.h: a record as a file: written as the run goes, and read back, whatever it holds.
//
//   F1  what was written before the last frame is read back, wherever the file was cut off
//   F2  a byte that changed is noticed: every frame has a checksum
//   F3  the file may be anything: what is wrong is an error that says where
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "reference/records/format.h"

namespace verbatim::records {

class RecordWriter final : public RecordSink {
public:
    // Errors: the file cannot be made.
    static Result<std::unique_ptr<RecordWriter>> create(const std::string& path, const RunDescription& run);
    ~RecordWriter() override;

    void add(Entry entry) override;
    void finish(RunEnd end) override;
    // Writes what is left. Errors: of any write so far.
    Status close();
    [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }

private:
    class Compressor;
    RecordWriter(std::string path, std::FILE* file);
    void add(uint8_t kind, std::span<const std::byte> bytes);
    void write_frame(uint32_t type, std::span<const std::byte> payload);
    void flush();

    std::string path_;
    std::FILE* file_;
    std::unique_ptr<Compressor> compressor_;
    std::vector<std::byte> encoded_;  // an entry
    std::vector<std::byte> waiting_;  // entries for the next frame
    int num_waiting_steps_ = 0;
    int64_t file_bytes_ = 0;
    Status status_;
};

// The whole file. A file that was cut off is read as far as it goes (Record::cut_off).
[[nodiscard]] Result<Record> read_record(const std::string& path);
// The same from memory; `path` is only for messages.
[[nodiscard]] Result<Record> read_record_bytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace verbatim::records
