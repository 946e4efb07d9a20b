// server/heads/head_tier.h: owns a folder of heads (reference/loader/head_file.h): those that memory let go of, and
// those that are to outlive the process.
//
//   T1  a head is handed out only if every checksum of its file holds, and model and arithmetic are this process's; a
//       damaged file is deleted, counted, and its tokens are computed again
//   T2  the files of this model and arithmetic take max_bytes at most; the least recently used go first, and never one
//       that others begin in
//   T3  one process writes to the folder: it holds a lock on DIR/lock
//   T4  callers neither read nor write a file: a thread does. At most max_waiting_bytes wait to be written; a head
//       beyond that is not written, and is counted
//   T5  a file appears complete under its name or not at all; its name is a digest of salt, arithmetic and tokens
//   T6  tensors of tokens that a head has in common with another one are stored once: the later file is a part, and
//       the other one its base. A part goes with its base
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/cache/head.h"
#include "engine/cache/prefix_index.h"
#include "engine/engine.h"
#include "files/file_lock.h"
#include "reference/loader/head_file.h"
#include "reference/model/state_tensors.h"

namespace verbatim::server {

// What a tier asks of the file system once it is open, on its thread. Tests fail and delay these calls.
class HeadFolder {
public:
    virtual ~HeadFolder() = default;
    // The file's header_xxh3.
    virtual Result<std::string> write(const std::filesystem::path& path, const reference::HeadInfo& info,
                                      const reference::StateTensors& tensors, std::span<const std::byte> bytes);
    virtual Result<reference::HeadFile> read(const std::filesystem::path& path);
    virtual void remove(const std::filesystem::path& path);  // if it can be removed
};

struct HeadTierConfig {
    std::filesystem::path folder;  // made if it is not there
    int64_t max_bytes = int64_t{10} << 30;
    int64_t max_waiting_bytes = int64_t{256} << 20;
    int64_t min_tokens = 32;  // shorter heads are not written
    std::string model;        // digest of configuration and weights
    std::string numerics;     // id of the heads that are kept
    reference::StateTensors tensors;
    int32_t vocab_size = 0;
    HeadFolder* calls = nullptr;  // borrowed; null: the system's
};

// Of this process, but for the first two.
struct HeadTierCounts {
    int64_t num_files = 0;
    int64_t num_bytes = 0;
    int64_t written = 0;
    int64_t written_bytes = 0;
    int64_t not_written = 0;  // too much was waiting, or the folder failed
    int64_t restored = 0;
    int64_t restored_bytes = 0;
    int64_t restored_tokens = 0;
    int64_t read_ns = 0;    // reading and checking restored files
    int64_t not_worth = 0;  // a head was there, and computing was expected to be quicker
    int64_t damaged = 0;
    std::string problem;  // of the last write that failed; empty: writing works
};

// All calls but counts() from one thread.
class HeadTier {
public:
    // Reads the headers of the files that are there. Files of other models, arithmetic and formats stay, and do not
    // count.
    // Errors: the system's; another process has the folder.
    static Result<std::unique_ptr<HeadTier>> open(HeadTierConfig config);
    HeadTier(const HeadTier&) = delete;
    HeadTier& operator=(const HeadTier&) = delete;
    ~HeadTier();  // writes what waits

    struct Found {
        HeadId id = kNoHead;  // of this tier
        int64_t length = 0;   // tokens
        int64_t bytes = 0;    // that are read for it
    };
    // The longest head with at most `max_length` tokens, all of them the first ones of `tokens`.
    [[nodiscard]] std::optional<Found> find(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length);
    using FilePtr = std::shared_ptr<const reference::HeadFile>;
    // Reads and checks the file; `loaded` is called on the tier's thread, with null where it is gone or damaged.
    void load(HeadId id, std::function<void(FilePtr)> loaded);
    // Whether put() of this head would write it.
    [[nodiscard]] bool wants(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics);
    void put(const CacheSalt& salt, HeadCopy head);

    void note_restored(const Found& found);
    void note_not_worth();
    // Nanoseconds that reading and checking so many bytes is expected to take, from what was read before.
    [[nodiscard]] int64_t expected_read_ns(int64_t num_bytes) const;
    [[nodiscard]] HeadTierCounts counts() const;
    void wait_until_written();

private:
    // A file that is there, or that waits to be written.
    struct File {
        Head head;
        std::string name;
        int64_t bytes = 0;
        HeadId base = kNoHead;
        int64_t base_length = 0;            // tokens that are in the base
        int num_bases = 0;                  // one behind the other
        std::vector<HeadId> parts;          // whose base it is
        std::list<HeadId>::iterator place;  // in by_use_
    };
    struct Job {
        std::filesystem::path path;
        std::optional<reference::HeadInfo> info;  // to be written, with `bytes`
        std::vector<std::byte> bytes;
        std::function<void(FilePtr)> loaded;                          // to be read
        std::vector<std::pair<HeadId, std::filesystem::path>> bases;  // of what is read
        HeadId id = kNoHead;
        bool removes = false;
    };
    // A file's header when the folder is opened.
    struct FileHeader {
        std::filesystem::path path;
        reference::HeadInfo info;
        std::string header_xxh3;
        int64_t bytes = 0;
    };
    explicit HeadTier(HeadTierConfig config);
    Status read_folder();
    [[nodiscard]] std::optional<FileHeader> read_header(const std::filesystem::path& path);
    bool add_found(const FileHeader& found);
    File& add(const CacheSalt& salt, std::span<const TokenId> tokens, std::string name, int64_t bytes);
    void set_base(File& file, HeadId base, int64_t length);
    struct Beginning {
        HeadId base = kNoHead;
        int64_t length = 0;  // tokens
    };
    [[nodiscard]] Beginning base_for(const CacheSalt& salt, const TokenSeq& tokens) const;
    [[nodiscard]] std::filesystem::path path_of(const File& file) const;
    void use(File& file);
    void drop(HeadId id);
    void drop_failed();
    // False: what must stay leaves no room.
    bool make_room(int64_t bytes, HeadId except);
    void enqueue(Job job);
    void run();
    void carry_out(Job& job);
    void read(Job& job);
    void write(Job& job);
    Result<std::string> write_file(Job& job);
    [[nodiscard]] std::string name_of(const CacheSalt& salt, const TokenSeq& tokens) const;

    const HeadTierConfig config_;
    HeadFolder system_;
    HeadFolder& calls_;
    std::optional<files::FileLock> lock_;
    TokenStore store_;
    PrefixIndex index_;
    std::unordered_map<HeadId, std::unique_ptr<File>> files_;
    std::unordered_map<std::string, HeadId> by_name_;
    std::list<HeadId> by_use_;  // least recently used first
    int64_t num_bytes_ = 0;
    int64_t next_id_ = 0;

    mutable std::mutex mutex_;  // guards the following
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    int64_t waiting_bytes_ = 0;
    bool is_busy_ = false;
    bool stopping_ = false;
    HeadTierCounts counts_;
    std::vector<HeadId> failed_;  // whose files could not be written or read: to be dropped

    std::unordered_map<std::string, std::string> header_xxh3_;  // by name; of files that are there. The thread's
    std::thread thread_;
};

}  // namespace verbatim::server
