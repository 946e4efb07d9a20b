// reference/records/record_file.h: a record as a file: written during the run, and read back as untrusted input.
//
//   F1  everything before the last complete frame is read back, wherever the file was truncated
//   F2  a changed byte is detected: every frame has a checksum
//   F3  the file may hold any bytes: malformed input is an error that names the offset
//   F4  PATH is a complete record: during the run, and after a failed run, the file is PATH.partial
//       (files/output_file.h)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "files/output_file.h"
#include "reference/records/format.h"

namespace verbatim::records {

class RecordWriter final : public RecordSink {
public:
    // Errors: the file cannot be created.
    static Result<std::unique_ptr<RecordWriter>> create(const std::string& path, const RunDescription& run);
    // REQUIRES: `file` writes `path`.
    static Result<std::unique_ptr<RecordWriter>> create(const std::string& path, files::OutputFile file,
                                                        const RunDescription& run);
    // An output file that stays as PATH.partial when its run fails.
    static Result<files::OutputFile> create_file(const std::string& path);
    // Without close(), PATH.partial stays as it is.
    ~RecordWriter() override;
    // Called at most once, at the first write that fails; later entries are dropped.
    void on_failure(std::function<void(const Error&)> act) { on_failure_ = std::move(act); }

    void add(Entry entry) override;
    void finish(RunEnd end) override;
    // Writes the rest, and renames the file to PATH. Errors: of any write so far; the file stays PATH.partial.
    Status close();
    // Thread-safe.
    [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }
    [[nodiscard]] bool failed() const { return failed_; }

private:
    class Compressor;
    RecordWriter(std::string path, files::OutputFile file);
    void add(uint8_t kind, std::span<const std::byte> bytes);
    void write_frame(uint32_t type, std::span<const std::byte> payload);
    void flush();
    void hand_over();
    void note(Status written);

    std::string path_;
    files::OutputFile file_;
    bool is_ended_ = false;  // finish() was called: nothing may follow
    bool is_closed_ = false;
    std::function<void(const Error&)> on_failure_;
    std::unique_ptr<Compressor> compressor_;
    std::vector<std::byte> encoded_;  // an entry
    std::vector<std::byte> waiting_;  // encoded entries of the next frame
    int num_waiting_steps_ = 0;
    int64_t unflushed_bytes_ = 0;
    std::atomic<int64_t> file_bytes_ = 0;  // written to the file system
    std::atomic<bool> failed_ = false;
    Status status_;
};

// Reads the whole file. A truncated file is read up to its last complete frame (Record::cut_off).
[[nodiscard]] Result<Record> read_record(const std::string& path);
// The same from memory; errors name `path`.
[[nodiscard]] Result<Record> read_record_bytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace verbatim::records
