// tests/server/ledger/power_cut_disk.h: an in-memory disk for SQLite that loses unsynced data at a power cut.
//
//   W1  after the cut a file has at least the contents of its last sync
//   W2  any part of later writes may be present: whole writes, halves, later ones without earlier ones
//   W3  a file that was never synced may be missing; a file deleted without a sync of its folder may be present
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace verbatim::tests {

using DiskContents = std::map<std::string, std::string>;  // of files by name

// SQLite's default file system during its lifetime: SQLite opens every file on it.
class PowerCutDisk {
public:
    explicit PowerCutDisk(uint64_t seed, const DiskContents& contents = {});
    PowerCutDisk(const PowerCutDisk&) = delete;
    PowerCutDisk& operator=(const PowerCutDisk&) = delete;
    ~PowerCutDisk();

    // Cuts the power after `num_operations` more writes, syncs and deletes: later ones fail.
    void cut_after(int64_t num_operations);
    [[nodiscard]] bool is_cut() const { return num_left_ < 0; }
    // Restores the power. REQUIRES: no file is open.
    void restart();
    // REQUIRES: none is open, all are synced.
    [[nodiscard]] DiskContents contents() const;
    [[nodiscard]] int64_t num_lost_writes() const { return num_lost_writes_; }  // at all cuts

    struct Operation {
        int64_t offset = -1;  // -1: a truncation to `size`
        int64_t size = 0;
        std::string bytes;
    };
    struct File {
        std::string bytes;
        std::string synced;            // at the last sync
        std::vector<Operation> since;  // what makes `bytes` of `synced`
        bool is_synced = false;
        bool is_deleted = false;  // without a sync of the folder
    };
    [[nodiscard]] bool may_change();  // takes one operation
    // Null: it does not exist, and `make` is false.
    File* open(const std::string& name, bool make);
    void remove(const std::string& name, bool syncs_folder);
    [[nodiscard]] bool has(const std::string& name) const;
    int num_open = 0;

private:
    struct System;
    int64_t below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
    void lose(File& file);
    void lose_part(std::string& bytes, const Operation& operation);

    std::mt19937_64 random_;
    std::map<std::string, std::unique_ptr<File>> files_;
    int64_t num_left_ = int64_t{1} << 60;
    int64_t num_lost_writes_ = 0;
    std::unique_ptr<System> system_;
};

}  // namespace verbatim::tests
