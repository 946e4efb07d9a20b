#include "kernels/sandbox/invariance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <span>
#include <utility>

namespace verbatim::sandbox {
namespace {

constexpr int64_t kMostItems = 4;  // of a batch, that are tried alone

constexpr const char* kNames[] = {"run", "batch", "position", "chunk", "threads"};

// A property is tried in one of so many real cases. Company is what they are for; the rest costs many calls of each.
size_t one_real_of(Property property) {
    switch (property) {
        case Property::kBatch: return 1;
        case Property::kThreads: return 12;
        default: return 6;
    }
}

// Some of 0 ... count - 1: the first, the last and between.
std::vector<int64_t> some_of(int64_t count) {
    std::vector<int64_t> items;
    for (int64_t i = 0; i < std::min(count, kMostItems); ++i) {
        items.push_back(count <= kMostItems ? i : i * (count - 1) / (kMostItems - 1));
    }
    return items;
}

// One kernel, one call: what it leaves, and in what ways that differs.
class Variations {
public:
    Variations(KernelHost& host, const KernelInfo& kernel, const Operation& operation, const KernelCase& one)
        : host_(host), kernel_(kernel), one_(one), call_(make_arguments(operation, one)), whole_(run(call_)) {}

    [[nodiscard]] bool is_refused() const { return !whole_ && !failure_; }

    Variation find(Property property) {
        if (!whole_) return {failure_, {}};
        failure_.reset();
        tried_ = {};
        switch (property) {
            case Property::kRun: again(*whole_); break;
            case Property::kBatch: in_less_company(*whole_); break;
            case Property::kPosition: in_other_places(*whole_); break;
            case Property::kChunk: in_chunks(*whole_); break;
            case Property::kThreads: in_other_ways(*whole_); break;
        }
        if (failure_ && failure_->verdict == Verdict::kVaries) failure_->property = name(property);
        return {failure_, tried_};
    }

private:
    // Empty: the kernel does not take it, or it is a failure.
    std::optional<Arguments> run(const Arguments& call, const CallOptions& options = {}) {
        CallResult result = host_.call(kernel_, call, options);
        if (result.end == CallEnd::kDone) {
            ++tried_.taken;
            return std::move(result.after);
        }
        if (result.end == CallEnd::kUnsupported) {
            ++tried_.refused;
        } else {
            failure_ = Failure{verdict_of(result), result.detail, one_, options, "", ""};
            failure_->where = result.where;
        }
        return std::nullopt;
    }
    // True when it is time to stop.
    bool stopped() const { return failure_.has_value(); }
    void expect_same(const std::optional<Arguments>& got, const Arguments& wanted, const std::string& what,
                     const CallOptions& options = {}) {
        if (!got) return;
        const std::string difference = first_difference(*got, wanted);
        if (difference.empty()) return;
        failure_ = Failure{Verdict::kVaries, fmt::format("{}: {}", what, difference), one_, options, "", ""};
    }

    void again(const Arguments& whole) {
        for (int i = 0; i < 4 && !stopped(); ++i) {
            CallOptions options;
            options.output_poison = static_cast<uint8_t>(i % 2);
            options.workspace_poison = static_cast<uint8_t>(i / 2);
            expect_same(run(call_, options), whole, "the same call again", options);
        }
        if (!kernel_.is_emulated()) return;
        // A GPU's order of blocks and warps is another one in each run.
        constexpr simt::Schedule kOrders[] = {simt::Schedule::kReverse, simt::Schedule::kRandom,
                                              simt::Schedule::kRandom, simt::Schedule::kOneWarpAhead};
        for (size_t i = 0; i < std::size(kOrders) && !stopped(); ++i) {
            CallOptions options;
            options.schedule = kOrders[i];
            options.schedule_seed = one_.seed + i;
            expect_same(run(call_, options), whole, "the same call in another order of blocks and warps", options);
        }
    }

    void expect_items(const Arguments& whole, const std::vector<int64_t>& items, const std::string& what) {
        if (!stopped()) expect_same(run(of_items(call_, items)), of_items(whole, items), what);
    }
    // As expect_items, with the bounds that a launch of these items would be given.
    void expect_bounded(const Arguments& whole, const std::vector<int64_t>& items, const std::string& what) {
        if (call_.operation->bounded_otherwise == nullptr) return;
        for (const Arguments& call : call_.operation->bounded_otherwise(of_items(call_, items))) {
            if (stopped()) return;
            expect_same(run(call), of_items(whole, items),
                        fmt::format("{}, with bounds of {}", what, describe(*call.operation, call.sizes)));
        }
    }
    void in_less_company(const Arguments& whole) {
        const int64_t count = std::ssize(call_.item_rows);
        for (const int64_t item : some_of(count)) {
            const std::string what = fmt::format("{} {} of {} differs from itself alone", item_word(), item, count);
            expect_items(whole, {item}, what);
            expect_bounded(whole, {item}, what);
        }
        std::vector<int64_t> all(static_cast<size_t>(count));
        std::iota(all.begin(), all.end(), 0);
        expect_bounded(whole, all, fmt::format("all {} differ", count));
        for (const int64_t part : {count / 2, count - 1}) {
            if (part < 2 || stopped()) continue;  // the first one alone has been tried
            std::vector<int64_t> items(static_cast<size_t>(part));
            std::iota(items.begin(), items.end(), 0);
            expect_items(whole, items, fmt::format("the first {} of {} differ when the others are away", part, count));
        }
    }
    void in_other_places(const Arguments& whole) {
        std::vector<int64_t> items(call_.item_rows.size());
        std::iota(items.begin(), items.end(), 0);
        std::ranges::reverse(items);
        expect_items(whole, items, "in reverse order");
        if (items.size() == 2) return;  // the first one last is the same order
        std::ranges::reverse(items);
        std::ranges::rotate(items, items.begin() + 1);
        expect_items(whole, items, "the first one last");
    }

    // An item's rows in two calls, or one by one: outputs by row, and what the last call leaves. Behind a chunk that
    // the kernel refuses there is none.
    void expect_chunks(const Arguments& whole, int64_t item, const std::vector<int64_t>& cuts) {
        std::optional<Arguments> done;
        const Tried before = tried_;
        int64_t first = 0;
        for (size_t i = 0; i < cuts.size() && !stopped(); ++i) {
            Arguments chunk = of_rows(call_, item, first, cuts[i] - first);
            if (i > 0) carry(*done, chunk);
            done = run(chunk);
            if (!done) break;
            Arguments wanted = of_rows(whole, item, first, cuts[i] - first);
            const bool is_last = i + 1 == cuts.size();
            for (size_t t = 0; t < wanted.tensors.size() && !is_last; ++t) {
                // What is left for the next chunk is known at the end alone.
                if (wanted.tensors[t].spec.axis == Axis::kItem) wanted.tensors[t].bytes = done->tensors[t].bytes;
            }
            expect_same(
                done, wanted,
                fmt::format("{} {}, rows {} ... {} in a call of their own", item_word(), item, first, cuts[i] - 1));
            first = cuts[i];
        }
        // All chunks are one variation.
        tried_ = before;
        ++(done ? tried_.taken : tried_.refused);
    }
    void in_chunks(const Arguments& whole) {
        for (const int64_t item : some_of(std::ssize(call_.item_rows))) {
            const int64_t rows = call_.item_rows[item];
            for (const int64_t cut : std::set<int64_t>{1, 2, rows / 2, rows - 1, 16, 64}) {
                if (cut > 0 && cut < rows && !stopped()) expect_chunks(whole, item, {cut, rows});
            }
            if (rows <= 2) continue;  // two rows, one by one, are those of the cut at 1
            std::vector<int64_t> one_by_one;
            for (int64_t i = 1; i <= std::min<int64_t>(rows, 20); ++i) one_by_one.push_back(i);
            one_by_one.back() = rows;
            if (!stopped()) expect_chunks(whole, item, one_by_one);
        }
    }

    void in_other_pages(const Arguments& whole) {
        if (call_.operation->paged_otherwise == nullptr) return;
        for (const Arguments& call : call_.operation->paged_otherwise(call_)) {
            if (stopped()) return;
            expect_same(run(call), whole, fmt::format("pages elsewhere, in blocks of {}", call.sizes[6]));
        }
    }

    void in_other_ways(const Arguments& whole) {
        const auto expect = [&](const CallOptions& options, const std::string& what) {
            if (!stopped()) expect_same(run(call_, options), whole, what, options);
        };
        for (const TaskOrder order : {TaskOrder::kReverse, TaskOrder::kShuffled, TaskOrder::kThreads}) {
            for (const int32_t threads : {2, 3, 8}) {
                CallOptions options;
                options.num_threads = threads;
                options.order = order;
                if (kernel_.machine == "cpu") expect(options, fmt::format("{} threads", threads));
            }
        }
        if (kernel_.machine == "cpu")
            expect({.num_threads = 3, .order = TaskOrder::kApart}, "each task on a thread of its own");
        for (const Placing placing : {Placing::kOdd, Placing::kAtEnd}) {
            CallOptions options;
            options.placing = placing;
            expect(options, "elsewhere in memory");
        }
        in_other_pages(whole);
        if (kernel_.machine != "cuda") return;
        for (const int32_t processors : {2, 7, 132}) {
            CallOptions options;
            options.num_threads = processors;
            expect(options, fmt::format("a grid for {} multiprocessors", processors));
        }
        for (const int32_t block : {32, 64, 128, 256}) {
            CallOptions options;
            options.block_threads = block;
            expect(options, fmt::format("blocks of {} threads", block));
        }
    }

    [[nodiscard]] const char* item_word() const {
        const auto sequences = [](const Tensor& tensor) { return tensor.spec.fill == Fill::kFirstRow; };
        return std::ranges::any_of(call_.tensors, sequences) ? "sequence" : "row";
    }

    KernelHost& host_;
    const KernelInfo& kernel_;
    KernelCase one_;
    Arguments call_;
    std::optional<Failure> failure_;
    Tried tried_;
    std::optional<Arguments> whole_;  // what the call leaves; behind the members that run() sets
};

}  // namespace

std::string_view name(Property property) { return kNames[static_cast<size_t>(property)]; }

std::optional<Property> property_of(std::string_view name) {
    const auto* found = std::ranges::find(kNames, name);
    if (found == std::end(kNames)) return std::nullopt;
    return kProperties[found - std::begin(kNames)];
}

Variation find_variation(KernelHost& host, const KernelInfo& kernel, const Operation& operation, Property property,
                         const KernelCase& one) {
    return Variations(host, kernel, operation, one).find(property);
}

InvarianceResult check_invariance(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                                  const std::vector<KernelCase>& cases) {
    InvarianceResult result;
    size_t num_real = 0;
    for (const KernelCase& one : cases) {
        Variations variations(host, kernel, operation, one);
        if (variations.is_refused()) continue;
        ++result.num_cases;
        const size_t real = is_real(operation, one.sizes) ? num_real++ : 0;
        for (size_t i = 0; i < std::size(kProperties); ++i) {
            const bool is_left_out = real % one_real_of(kProperties[i]) != 0 && !one.captured;
            if (is_left_out || result.broken[i]) continue;
            const auto [found, tried] = variations.find(kProperties[i]);
            result.tried[i].taken += tried.taken;
            result.tried[i].refused += tried.refused;
            if (!found) continue;
            const Fails fails = [&](const KernelCase& smaller) {
                return find_variation(host, kernel, operation, kProperties[i], smaller).failure;
            };
            const bool hangs = found->verdict == Verdict::kHang;
            const Failure smallest = hangs ? *found : smallest_failure(operation, *found, fails);
            if (smallest.verdict != Verdict::kVaries) {
                result.failure = smallest;
                return result;
            }
            result.broken[i] = smallest;
        }
    }
    return result;
}

}  // namespace verbatim::sandbox
