// reference/records/record_file.h: a record as a file: written as the run goes, and read back, whatever it holds.
//
//   F1  what was written before the last frame is read back, wherever the file was cut off
//   F2  a byte that changed is noticed: every frame has a checksum
//   F3  the file may be anything: what is wrong is an error that says where
//   F4  PATH is a whole record: while it is written, and when its run fails, it is PATH.partial (files/output_file.h)
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
    // Errors: the file cannot be made.
    static Result<std::unique_ptr<RecordWriter>> create(const std::string& path, const RunDescription& run);
    // REQUIRES: `file` writes `path`.
    static Result<std::unique_ptr<RecordWriter>> create(const std::string& path, files::OutputFile file,
                                                        const RunDescription& run);
    // A file that stays as PATH.partial when its run fails.
    static Result<files::OutputFile> create_file(const std::string& path);
    // Unless close() was called, PATH.partial is left as it is.
    ~RecordWriter() override;
    // Called at most once, at the first write that fails; after it nothing is written.
    void on_failure(std::function<void(const Error&)> act) { on_failure_ = std::move(act); }

    void add(Entry entry) override;
    void finish(RunEnd end) override;
    // Writes what is left, and gives the file its name. Errors: of any write so far; the file is PATH.partial then.
    Status close();
    // From any thread.
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
    bool is_closed_ = false;
    std::function<void(const Error&)> on_failure_;
    std::unique_ptr<Compressor> compressor_;
    std::vector<std::byte> encoded_;  // an entry
    std::vector<std::byte> waiting_;  // entries for the next frame
    int num_waiting_steps_ = 0;
    int64_t unflushed_bytes_ = 0;
    std::atomic<int64_t> file_bytes_ = 0;  // that the system has taken
    std::atomic<bool> failed_ = false;
    Status status_;
};

// The whole file. A file that was cut off is read as far as it goes (Record::cut_off).
[[nodiscard]] Result<Record> read_record(const std::string& path);
// The same from memory; `path` is only for messages.
[[nodiscard]] Result<Record> read_record_bytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace verbatim::records
