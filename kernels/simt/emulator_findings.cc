// Emulator: findings and notes.
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/simt/emulator.h"

#include "engine/base/check.h"

namespace verbatim::simt {
namespace {

constexpr int64_t kMaxFindingsPerKind = 4;  // findings reported per kernel and kind

// The call stack of the running thread; a fiber's stack ends at its entry function.
std::vector<const void*> frames_here() {
    constexpr int kMost = 16;
    void* frames[kMost];
    const int count = backtrace(frames, kMost);
    return std::vector<const void*>(frames, frames + count);
}

}  // namespace

void Emulator::clear_findings() {
    CHECK(!doubtful_, "{}: a finding is not settled", kernel_name_);
    findings_.clear();
    num_found_.clear();
}

void Emulator::note(std::string what) {
    if (std::ranges::find(notes_, what) == notes_.end()) notes_.push_back(std::move(what));
}

void Emulator::found_in_launch(FindingKind kind, const std::string& what) {
    findings_.push_back({kind, fmt::format("{}: {}: {}", kernel_name_, name(kind), what), {}});
    if (watch_finding_) watch_finding_(findings_.back());
}

void Emulator::found_on_host(const std::string& what, FindingKind kind) {
    if (++num_found_[{"", kind}] > 1) return;
    findings_.push_back({kind, what, keeps_frames_ ? frames_here() : std::vector<const void*>()});
    if (watch_finding_) watch_finding_(findings_.back());
}

Finding Emulator::finding_here(FindingKind kind, const std::string& what) const {
    return {
        kind,
        fmt::format("{}: block ({}, {}, {}), thread ({}, {}): {}: {}", kernel_name_, block_position_.x,
                    block_position_.y, block_position_.z, running_->position.x, running_->position.y, name(kind), what),
        keeps_frames_ && in_thread_ ? frames_here() : std::vector<const void*>()};
}

void Emulator::add_finding(Finding finding) {
    if (++num_found_[{kernel_name_, finding.kind}] > kMaxFindingsPerKind) return;
    findings_.push_back(std::move(finding));
    if (watch_finding_) watch_finding_(findings_.back());
}

void Emulator::found(FindingKind kind, const std::string& what) {
    CHECK(running_ != nullptr, "{}: {}, by no thread", kernel_name_, what);
    if (num_found_[{kernel_name_, kind}] < kMaxFindingsPerKind) add_finding(finding_here(kind, what));
}

void Emulator::found_unless(FindingKind kind, const std::string& what, std::function<bool()> is_harmless,
                            std::string note) {
    settle();
    doubtful_ = Doubtful{finding_here(kind, what), std::move(is_harmless), std::move(note)};
}

void Emulator::settle_doubtful() {
    CHECK(doubtful_.has_value() && doubtful_->is_harmless);
    Doubtful doubtful = std::move(*doubtful_);
    doubtful_.reset();
    if (doubtful.is_harmless()) {
        note(std::move(doubtful.note));
    } else {
        add_finding(std::move(doubtful.finding));
    }
}

}  // namespace verbatim::simt
