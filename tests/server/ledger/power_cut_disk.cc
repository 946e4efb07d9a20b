#include "tests/server/ledger/power_cut_disk.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace verbatim::tests {
namespace {

constexpr int64_t kSector = 512;
constexpr size_t kUsualBytes = size_t{256} << 10;  // of a file: it grows without being moved

struct OpenFile {
    sqlite3_file base;
    PowerCutDisk* disk;
    PowerCutDisk::File* file;
};

OpenFile& of(sqlite3_file* file) { return *reinterpret_cast<OpenFile*>(file); }
PowerCutDisk& disk_of(sqlite3_vfs* system) { return *static_cast<PowerCutDisk*>(system->pAppData); }
sqlite3_vfs* real(sqlite3_vfs* system) { return system->pNext; }

void write_into(std::string& bytes, int64_t offset, std::string_view what) {
    const auto place = static_cast<size_t>(offset);
    if (bytes.capacity() < kUsualBytes) bytes.reserve(kUsualBytes);
    if (bytes.size() < place) bytes.resize(place);
    bytes.replace(place, what.size(), what);  // and what is behind the end is added
}

void carry_out(std::string& bytes, const PowerCutDisk::Operation& operation) {
    if (operation.offset >= 0)
        write_into(bytes, operation.offset, operation.bytes);
    else
        bytes.resize(static_cast<size_t>(operation.size));
}

int close_file(sqlite3_file* file) {
    --of(file).disk->num_open;
    return SQLITE_OK;
}

int read_file(sqlite3_file* file, void* to, int amount, sqlite3_int64 offset) {
    const std::string& bytes = of(file).file->bytes;
    const auto at = std::min(static_cast<size_t>(offset), bytes.size());
    const size_t got = std::min(static_cast<size_t>(amount), bytes.size() - at);
    std::memcpy(to, bytes.data() + at, got);
    std::memset(static_cast<char*>(to) + got, 0, static_cast<size_t>(amount) - got);
    return got == static_cast<size_t>(amount) ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* file, const void* from, int amount, sqlite3_int64 offset) {
    if (!of(file).disk->may_change()) return SQLITE_IOERR_WRITE;
    const std::string_view what(static_cast<const char*>(from), static_cast<size_t>(amount));
    write_into(of(file).file->bytes, offset, what);
    of(file).file->since.push_back({offset, amount, std::string(what)});
    return SQLITE_OK;
}

int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
    if (!of(file).disk->may_change()) return SQLITE_IOERR_TRUNCATE;
    of(file).file->bytes.resize(static_cast<size_t>(size));
    of(file).file->since.push_back({-1, size, ""});
    return SQLITE_OK;
}

int sync_file(sqlite3_file* file, int) {
    if (!of(file).disk->may_change()) return SQLITE_IOERR_FSYNC;
    PowerCutDisk::File& synced = *of(file).file;
    for (const PowerCutDisk::Operation& operation : synced.since) carry_out(synced.synced, operation);
    synced.since.clear();
    synced.is_synced = true;
    return SQLITE_OK;
}

int size_of_file(sqlite3_file* file, sqlite3_int64* size) {
    *size = static_cast<sqlite3_int64>(of(file).file->bytes.size());
    return SQLITE_OK;
}

int lock_file(sqlite3_file*, int) { return SQLITE_OK; }

int check_lock(sqlite3_file*, int* locked) {
    *locked = 0;
    return SQLITE_OK;
}

int control_file(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int sector_size(sqlite3_file*) { return 4096; }
int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }  // as the default one says

const sqlite3_io_methods kMethods = {
    1,         close_file, read_file,  write_file,   truncate_file, sync_file,       size_of_file,
    lock_file, lock_file,  check_lock, control_file, sector_size,   characteristics, nullptr,
    nullptr,   nullptr,    nullptr,    nullptr,      nullptr};

int open_file(sqlite3_vfs* system, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    file->pMethods = nullptr;
    PowerCutDisk& disk = disk_of(system);
    EXPECT_NE(name, nullptr) << "SQLite asks for a temporary file";
    PowerCutDisk::File* found = name == nullptr ? nullptr : disk.open(name, (flags & SQLITE_OPEN_CREATE) != 0);
    if (found == nullptr) return SQLITE_CANTOPEN;
    of(file).disk = &disk;
    of(file).file = found;
    file->pMethods = &kMethods;
    ++disk.num_open;
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
}

int delete_file(sqlite3_vfs* system, const char* name, int syncs_folder) {
    if (!disk_of(system).has(name)) return SQLITE_IOERR_DELETE_NOENT;
    if (!disk_of(system).may_change()) return SQLITE_IOERR_DELETE;
    disk_of(system).remove(name, syncs_folder != 0);
    return SQLITE_OK;
}

int access_file(sqlite3_vfs* system, const char* name, int, int* there) {
    *there = disk_of(system).has(name) ? 1 : 0;
    return SQLITE_OK;
}

int full_path(sqlite3_vfs*, const char* name, int size, char* to) {
    sqlite3_snprintf(size, to, "%s", name);
    return SQLITE_OK;
}

int random_bytes(sqlite3_vfs* system, int size, char* to) { return real(system)->xRandomness(real(system), size, to); }
int sleep_for(sqlite3_vfs* system, int microseconds) { return real(system)->xSleep(real(system), microseconds); }
int current_time(sqlite3_vfs* system, double* now) { return real(system)->xCurrentTime(real(system), now); }
int last_error(sqlite3_vfs*, int, char*) { return 0; }

}  // namespace

struct PowerCutDisk::System {
    sqlite3_vfs vfs{};
};

PowerCutDisk::PowerCutDisk(uint64_t seed, const DiskContents& contents)
    : random_(seed), system_(std::make_unique<System>()) {
    for (const auto& [name, bytes] : contents) {
        auto& file = files_[name] = std::make_unique<File>();
        write_into(file->bytes, 0, bytes);
        write_into(file->synced, 0, bytes);
        file->is_synced = true;
    }
    sqlite3_initialize();
    sqlite3_vfs& vfs = system_->vfs;
    vfs.iVersion = 1;
    vfs.szOsFile = sizeof(OpenFile);
    vfs.mxPathname = 512;
    vfs.zName = "power-cut";
    vfs.pAppData = this;
    vfs.xOpen = open_file;
    vfs.xDelete = delete_file;
    vfs.xAccess = access_file;
    vfs.xFullPathname = full_path;
    vfs.xRandomness = random_bytes;
    vfs.xSleep = sleep_for;
    vfs.xCurrentTime = current_time;
    vfs.xGetLastError = last_error;
    sqlite3_vfs_register(&vfs, /*makeDflt=*/1);
}

PowerCutDisk::~PowerCutDisk() {
    EXPECT_EQ(num_open, 0);
    sqlite3_vfs_unregister(&system_->vfs);
}

void PowerCutDisk::cut_after(int64_t num_operations) { num_left_ = num_operations; }

bool PowerCutDisk::may_change() {
    if (num_left_ >= 0) --num_left_;
    return num_left_ >= 0;
}

PowerCutDisk::File* PowerCutDisk::open(const std::string& name, bool make) {
    auto& place = files_[name];
    if (place && !place->is_deleted) return place.get();
    if (!make) {
        if (!place) files_.erase(name);
        return nullptr;
    }
    if (!place) place = std::make_unique<File>();
    place->bytes.clear();
    if (place->is_deleted) place->since.push_back({-1, 0, ""});
    place->is_deleted = false;
    return place.get();
}

bool PowerCutDisk::has(const std::string& name) const {
    const auto found = files_.find(name);
    return found != files_.end() && !found->second->is_deleted;
}

void PowerCutDisk::remove(const std::string& name, bool syncs_folder) {
    if (syncs_folder)
        files_.erase(name);
    else
        files_.at(name)->is_deleted = true;
}

DiskContents PowerCutDisk::contents() const {
    EXPECT_EQ(num_open, 0);
    DiskContents contents;
    for (const auto& [name, file] : files_) {
        EXPECT_TRUE(file->is_synced && file->since.empty()) << name;
        if (!file->is_deleted) contents[name] = file->synced;
    }
    return contents;
}

void PowerCutDisk::restart() {
    EXPECT_EQ(num_open, 0) << "a file is open over the cut";
    num_left_ = int64_t{1} << 60;
    for (auto file = files_.begin(); file != files_.end();) {
        const bool may_go = !file->second->is_synced || file->second->is_deleted;
        if (may_go && below(2) == 0) {
            file = files_.erase(file);
            continue;
        }
        lose(*file->second);
        ++file;
    }
}

// All of what was not synced, all behind some write, or any part.
void PowerCutDisk::lose(File& file) {
    std::string& bytes = file.synced;
    const auto count = static_cast<int64_t>(file.since.size());
    const int64_t way = below(3);
    const int64_t num_first = way == 0 ? 0 : below(count + 1);
    for (int64_t i = 0; i < count; ++i) {
        const Operation& operation = file.since[static_cast<size_t>(i)];
        const bool is_there = way == 2 ? below(2) == 0 : i < num_first;
        const bool is_torn = operation.offset >= 0 && (way == 2 ? below(4) == 0 : i == num_first);
        if (is_torn && way > 0)
            lose_part(bytes, operation);
        else if (is_there)
            carry_out(bytes, operation);
        num_lost_writes_ += is_there && !is_torn ? 0 : 1;
    }
    if (count > 0) file.bytes = bytes;
    file.since.clear();
    file.is_synced = true;
    file.is_deleted = false;
}

// Any sectors of the write are there.
void PowerCutDisk::lose_part(std::string& bytes, const Operation& operation) {
    for (int64_t at = 0; at < operation.size;) {
        const int64_t end =
            std::min(operation.size, ((operation.offset + at) / kSector + 1) * kSector - operation.offset);
        if (below(2) == 0)
            write_into(
                bytes, operation.offset + at,
                std::string_view(operation.bytes).substr(static_cast<size_t>(at), static_cast<size_t>(end - at)));
        at = end;
    }
}

}  // namespace verbatim::tests
