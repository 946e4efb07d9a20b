#include "reference/records/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::records {

const char* name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kSame: return "same";
        case Verdict::kNotAllCompared: return "not_all_compared";
        case Verdict::kDifferent: return "different";
    }
    CHECK(false, "verdict {}", static_cast<int>(verdict));
}

void UnitCounts::add(std::string_view unit, int64_t count) {
    CHECK_LE(0, count);
    const auto known = std::ranges::find(counts_, unit, &std::pair<std::string, int64_t>::first);
    if (known == counts_.end()) {
        counts_.emplace_back(unit, count);
    } else {
        known->second += count;
    }
}

void UnitCounts::add(const UnitCounts& other) {
    for (const auto& [unit, count] : other.counts_) add(unit, count);
}

int64_t UnitCounts::of(std::string_view unit) const {
    const auto known = std::ranges::find(counts_, unit, &std::pair<std::string, int64_t>::first);
    return known == counts_.end() ? 0 : known->second;
}

bool UnitCounts::all_zero() const {
    return std::ranges::all_of(counts_, [](const auto& entry) { return entry.second == 0; });
}

ComparedShare::LeftOut& ComparedShare::entry(std::string_view reason, Promise promise) {
    const auto is_it = [&](const LeftOut& known) { return known.reason == reason && known.promise == promise; };
    const auto known = std::ranges::find_if(left_out_, is_it);
    if (known != left_out_.end()) return *known;
    return left_out_.emplace_back(LeftOut{.reason = std::string(reason), .promise = promise, .counts = {}});
}

void ComparedShare::leave_out(std::string_view reason, Promise promise, std::string_view unit, int64_t count) {
    CHECK_LE(0, count);
    if (count > 0) entry(reason, promise).counts.add(unit, count);
}

void ComparedShare::leave_out_uncounted(std::string_view reason, Promise promise) {
    entry(reason, promise).is_counted = false;
}

void ComparedShare::merge(const ComparedShare& other) {
    compared_.add(other.compared_);
    for (const LeftOut& theirs : other.left_out_) {
        LeftOut& mine = entry(theirs.reason, theirs.promise);
        mine.counts.add(theirs.counts);
        mine.is_counted = mine.is_counted && theirs.is_counted;
    }
}

UnitCounts ComparedShare::total() const {
    UnitCounts total = compared_;
    for (const LeftOut& left_out : left_out_) total.add(left_out.counts);
    return total;
}

bool ComparedShare::has_all_promised() const {
    return std::ranges::none_of(left_out_, [](const LeftOut& entry) { return entry.promise == Promise::kBits; });
}

Verdict verdict_of(bool differs, const ComparedShare& share) {
    if (differs) return Verdict::kDifferent;
    return share.is_empty() || !share.has_all_promised() ? Verdict::kNotAllCompared : Verdict::kSame;
}

std::string to_string(const ComparedShare& share) {
    std::vector<std::string> parts;
    const UnitCounts all = share.total();
    for (const auto& [unit, total] : all.all()) {
        if (total > 0) parts.push_back(fmt::format("{} of {} {}", share.compared().of(unit), total, unit));
    }
    return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string to_string(const ComparedShare::LeftOut& left_out) {
    std::vector<std::string> parts;
    for (const auto& [unit, count] : left_out.counts.all()) {
        if (count > 0) parts.push_back(fmt::format("{} {}", count, unit));
    }
    if (!left_out.is_counted) parts.emplace_back("how much is missing is not known");
    return fmt::format("{}: {}", left_out.reason, fmt::join(parts, ", "));
}

}  // namespace verbatim::records
