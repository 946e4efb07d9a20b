// server/heads/head_tier.h: owns a folder of heads (reference/loader/head_file.h): those that memory let go of, and
// those that are to outlive the process.
//
//   T1  a head is handed out only if every checksum of its file holds, and model and arithmetic are this process's; a
//       damaged file is deleted, counted, and its tokens are computed again. One that the machine cannot read now stays
//   T2  the files of this model and arithmetic take max_bytes at most; the least recently used go first, and never one
//       that others begin in
//   T3  one process writes to the folder: it holds a lock on DIR/lock. Others may read it: they take no lock, write and
//       delete nothing, and see files that come and go
//   T4  callers neither read nor write a file: one thread reads, another one writes, with `yields` when the machine
//       has nothing else to do. At most max_waiting_bytes, or one head, wait to be written; a head beyond that is
//       not written, and is counted
//   T5  a file appears complete under its name or not at all; its name is a digest of salt, arithmetic and tokens
//   T6  tensors of tokens that a head has in common with another one are stored once: the later file is a part, and
//       the other one its base. A part goes with its base
//   T7  a conversation that is deleted takes along the files that belong to it alone (HeadOwners), and those of its
//       committed tokens that belong to none. Parts of others that begin in them are written whole before. A file has
//       its owners until it is removed: after a kill, deleting again finds it
#pragma once

#include <atomic>
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
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/cache/head.h"
#include "engine/cache/prefix_index.h"
#include "engine/engine.h"
#include "engine/head_waits.h"
#include "files/file_lock.h"
#include "reference/loader/head_file.h"
#include "reference/model/state_tensors.h"
#include "server/heads/head_owners.h"
#include "server/threads.h"

namespace verbatim::server {

// What a tier asks of the file system once it is open, on its thread. Tests fail and delay these calls.
class HeadFolder {
public:
    virtual ~HeadFolder() = default;
    // The file's header_xxh3.
    virtual Result<std::string> write(const std::filesystem::path& path, const reference::HeadInfo& info,
                                      const reference::StateTensors& tensors, std::span<const std::byte> bytes);
    virtual Result<reference::HeadFile> read(const std::filesystem::path& path, int64_t first_token);
    virtual void remove(const std::filesystem::path& path);                            // if it can be removed
    virtual Status append(const std::filesystem::path& path, std::string_view lines);  // made if it is not there
};

struct HeadTierConfig {
    std::filesystem::path folder;  // made if it is not there
    int64_t max_bytes = int64_t{10} << 30;
    int64_t max_waiting_bytes = int64_t{256} << 20;
    int64_t min_tokens = 32;   // shorter heads are not written
    bool read_only = false;    // another process writes to the folder, or none
    bool notes_owners = true;  // which conversations files belong to outlives the process
    bool yields = true;        // files are written when the machine has nothing else to do
    std::string model;         // digest of configuration and weights
    std::string numerics;      // id of the heads that are kept
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
    int64_t not_kept = 0;     // reading them is expected to take longer than computing them
    int64_t restored = 0;
    int64_t restored_bytes = 0;  // of these heads, read or resident
    int64_t restored_tokens = 0;
    int64_t read_bytes = 0;  // of files, for heads that were restored or not
    int64_t read_ns = 0;     // reading and checking them
    int64_t not_worth = 0;   // a head was there, and computing was expected to be quicker
    int64_t no_room = 0;     // a head was read, and what ran left no room
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

    using Found = FoundHead;
    // The longest head with at most `max_length` tokens, all of them the first ones of `tokens`.
    [[nodiscard]] std::optional<Found> find(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length);
    using FilePtr = std::shared_ptr<const reference::HeadFile>;
    // Bytes of the state and of the KV from found.first_token on.
    [[nodiscard]] int64_t num_read_bytes(const Found& found) const;
    // Held for as long as the file is wanted.
    struct Reading {};
    using ReadingPtr = std::shared_ptr<const Reading>;
    // Reads and checks the file; `loaded` is called on a thread of the tier, with null where it is gone or damaged, or
    // cannot be read now. Once the caller has let go of `reading`, it need not be read; null: it is.
    void load(const Found& found, std::function<void(FilePtr)> loaded, const ReadingPtr& reading = nullptr);
    // Whether put() of this head would write it.
    [[nodiscard]] bool wants(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics);
    // The head belongs to these conversations (T7), which are named as in HeadOwners.
    void put(const CacheSalt& salt, HeadCopy head, std::span<const std::string> owners = {});
    // So does the head of these tokens, if it is here.
    void own(const CacheSalt& salt, const TokenSeq& tokens, std::span<const std::string> owners);
    // The heads of the first conversation that `committed` begins with belong to the other one, too.
    void share(const ConversationKey& from, const ConversationKey& to, const TokenSeq& committed);
    // The conversation of these committed tokens was deleted (T7). With read_only the heads are found no more, nor are
    // those that begin in their files.
    void forget(const ConversationKey& key, const TokenSeq& committed);

    // Where heads go that leave for want of room: `wants` is asked on the callers' thread; `take` gets the head on the
    // writer's, and null where it cannot be read.
    struct Overflow {
        std::function<bool(const Head& head, const std::vector<std::string>& owners)> wants;
        std::function<void(HeadId id, FilePtr head)> take;
    };
    void on_overflow(Overflow overflow);

    void note_restored(const Found& found, const reference::HeadFile& file);
    void note_not_worth();
    void note_not_kept();
    void note_no_room();
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
        int64_t num_bytes = 0;                                // of the tier's room, of what is written
        std::optional<std::weak_ptr<const Reading>> reading;  // none: what is read is wanted
        int64_t first_token = 0;                              // of what is read
        std::vector<TokenId> tokens;                          // that are in it
        bool removes = false;
        bool makes_whole = false;
        std::function<void(HeadId, FilePtr)> take;  // of what leaves for want of room
        std::string owners;                         // lines of HeadOwners
    };
    // One thread's.
    struct Queue {
        std::deque<Job> jobs;
        HeadId at_work = kNoHead;  // of the job that is carried out
        bool is_busy = false;
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
    void add_left();
    File& add(const CacheSalt& salt, std::span<const TokenId> tokens, std::string name, int64_t bytes);
    void set_base(File& file, HeadId base, int64_t length);
    struct Beginning {
        HeadId base = kNoHead;
        int64_t length = 0;  // tokens
    };
    [[nodiscard]] Beginning base_for(const CacheSalt& salt, const TokenSeq& tokens) const;
    [[nodiscard]] std::filesystem::path path_of(const std::string& name) const;
    void use(File& file);
    void drop(HeadId id);
    void drop_failed();
    // head_tier_owners.cc
    Status read_owners();
    void enqueue_owners(std::string lines);
    std::string add_owners(const std::string& name, std::span<const std::string> owners);
    Status append_owners(const std::string& lines);
    void compact_owners();
    void note_owners(const std::string& lines);
    void remove(const Job& job);
    [[nodiscard]] std::vector<HeadId> without_owner(const CacheSalt& salt, const TokenSeq& committed);
    void make_parts_whole(HeadId id, const std::unordered_set<HeadId>& going);
    void make_whole(Job& job);
    void give_on(const File& file);
    // Of a folder that another process writes to.
    void take_scanned();
    void scan();
    // False: what must stay leaves no room.
    bool make_room(int64_t bytes, HeadId except);
    void enqueue(Job job);
    [[nodiscard]] bool is_waiting_to_be_written(HeadId id) const;
    void run(Queue& queue);
    bool take_job(Queue& queue, std::unique_lock<Mutex>& lock, Job& job);
    void carry_out(Job& job);
    void read(Job& job);
    void fail(const Job& job, bool is_damaged);
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
    HeadOwners owners_;         // none with read_only
    Overflow overflow_;         // none: heads that go for want of room are gone
    int64_t num_bytes_ = 0;
    int64_t next_id_ = 0;

    mutable Mutex mutex_;  // guards the following
    Signal changed_;
    Queue reads_;
    Queue writes_;  // and removals, and reads of what waits to be written
    int64_t waiting_bytes_ = 0;
    bool stopping_ = false;
    bool scans_ = false;                 // the folder is to be looked at again
    std::vector<FileHeader> scanned_;    // files that have come
    std::vector<std::string> vanished_;  // names of files that have gone
    HeadTierCounts counts_;
    std::vector<HeadId> failed_;  // whose files could not be written or read: to be dropped

    std::vector<FileHeader> left_;                              // parts whose bases have not come yet
    std::atomic<bool> has_unread_ = false;                      // a header could not be read: whose it is, is not known
    std::unordered_map<std::string, std::string> header_xxh3_;  // by name; of files that are there. The writer's
    // Of the owners' file. The writer's.
    bool has_torn_line_ = false;
    std::string pending_owners_;  // lines that could not be appended
    size_t appended_bytes_ = 0;   // since it had the fewest lines
    size_t fewest_bytes_ = 0;     // it had then
    // Names and times of the files in the folder. The reader's.
    std::unordered_map<std::string, std::filesystem::file_time_type> seen_;
    std::filesystem::file_time_type seen_at_{};  // the folder's, when it was looked at. The same
    Thread reader_;
    Thread writer_;  // none with read_only
};

}  // namespace verbatim::server
