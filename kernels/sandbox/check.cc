#include "kernels/sandbox/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace verbatim::sandbox {
namespace {

constexpr Placing kPlacings[] = {Placing::kAligned, Placing::kOdd, Placing::kAtEnd};

// Of a GPU, for grids that fill it, and threads of a CPU, for tasks that share the work. Their number and that of the
// placings have no common factor, so that each meets every placing.
constexpr int32_t kMultiprocessors[] = {1, 132, 2, 7, 16};
constexpr int32_t kThreads[] = {1, 16, 2, 7, 3};

// Flops that a case may cost.
double most_work(const KernelInfo& kernel, Effort effort) {
    if (effort == Effort::kShort) return kernel.is_emulated() ? 3e4 : 1e6;
    return kernel.is_emulated() ? 1e6 : 6e7;
}

// What a size is while another one is real: enough for sums whose order shows, and little work.
int64_t thin(const SizeSpec& spec) {
    constexpr int64_t kLeast = 3;
    if (!spec.is_cut || spec.usual <= kLeast) return spec.usual;
    return std::max(kLeast, spec.least);
}

Sizes usual_sizes(const Operation& operation) {
    Sizes sizes{};
    for (size_t i = 0; i < operation.sizes.size(); ++i) sizes[i] = operation.sizes[i].usual;
    return sizes;
}

// Of a real batch: few cases, and in both efforts, for they find what no other case does.
double most_real_work(const KernelInfo& kernel) { return 2 * most_work(kernel, Effort::kFull); }

bool is_same(const CheckCase& a, const CheckCase& b) {
    return a.one.sizes == b.one.sizes && a.one.values == b.one.values && a.options.placing == b.options.placing;
}

class CaseList {
public:
    CaseList(const Operation& operation, const KernelInfo& kernel, Effort effort, uint64_t seed,
             const GivenSizes& given)
        : operation_(operation),
          classes_(given.values),
          most_work_(most_work(kernel, effort)),
          most_real_work_(most_real_work(kernel)),
          is_for_cuda_(kernel.machine == "cuda"),
          seed_(seed) {}

    [[nodiscard]] bool takes(ValueClass values) const {
        const bool is_asked_for = classes_.empty() || std::ranges::find(classes_, values) != classes_.end();
        return is_asked_for && (values != ValueClass::kNotFinite || operation_.takes_not_finite);
    }
    // The class of most cases: most bits show with normal values.
    [[nodiscard]] ValueClass plain() const {
        return takes(ValueClass::kNormal) ? ValueClass::kNormal : classes_.front();
    }
    [[nodiscard]] bool is_cheap(const Sizes& sizes) const { return work_of(sizes) <= most_work_; }
    [[nodiscard]] double work_of(const Sizes& sizes) const {
        return flops_of(operation_, {.sizes = sizes, .seed = seed_});
    }
    // With less of what may be cut, until it is cheap. Empty: it is not to be had.
    [[nodiscard]] std::optional<Sizes> made_cheap(Sizes sizes) const {
        while (!is_cheap(sizes)) {
            size_t most = kMaxSizes;
            for (size_t i = 0; i < operation_.sizes.size(); ++i) {
                const SizeSpec& spec = operation_.sizes[i];
                if (!spec.is_cut || sizes[i] / 2 < spec.least) continue;
                if (most == kMaxSizes || sizes[i] > sizes[most]) most = i;
            }
            if (most == kMaxSizes || sizes[most] == 0) return std::nullopt;
            sizes[most] /= 2;
        }
        return sizes;
    }

    // In every class of values, whatever it costs.
    void add_all(const Sizes& sizes) {
        constexpr double kAnyWork = std::numeric_limits<double>::infinity();
        for (const ValueClass values : kValueClasses)
            add(sizes, values, kPlacings[cases.size() % std::size(kPlacings)], kAnyWork);
    }
    // With the next class of values, placing and seed.
    void add(const Sizes& sizes) { add(sizes, next_class(), kPlacings[cases.size() % 3], most_work_); }
    // In classes that every algorithm takes at these sizes: sums of huge values over a long context overflow.
    void add_real(const Sizes& sizes) {
        const bool sums_exactly = cases.size() % 4 == 0 && takes(ValueClass::kIntegers);
        add_real(sizes, sums_exactly ? ValueClass::kIntegers : plain());
    }
    void add_real(const Sizes& sizes, ValueClass values) {
        const size_t before = cases.size();
        add(sizes, values, kPlacings[cases.size() % std::size(kPlacings)], most_real_work_);
        if (cases.size() > before && num_real_watched_ < kMostWatched) {
            cases.back().options.watches_tasks = !is_for_cuda_;
            ++num_real_watched_;
        }
    }
    // In memory that every fast way takes. All of these together cost as much as one real batch.
    void add_aligned(const Sizes& sizes) {
        constexpr double kMostProduct = 1 << 22;  // more is too much work, and its tensors may be too large to outline
        double product = 1;
        for (const int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(size, 1));
        if (product > kMostProduct || !go_together(operation_, sizes)) return;
        const double work = work_of(sizes);
        if (aligned_work_ + work > most_real_work_) return;
        aligned_work_ += work;
        add(sizes, plain(), Placing::kAligned, most_real_work_);
    }
    // Where the first row is aligned, and the next one is not, with the least number of rows for it.
    void add_first_aligned(Sizes sizes) {
        for (sizes[0] = 2; !odd_begins_aligned(sizes);) ++sizes[0];
        add(sizes, plain(), Placing::kOdd, most_work_);
    }
    void add(const Sizes& sizes, ValueClass values, Placing placing) { add(sizes, values, placing, most_work_); }

    std::vector<CheckCase> cases;

private:
    void add(const Sizes& sizes, ValueClass values, Placing placing, double most_work) {
        if (!takes(values) || !go_together(operation_, sizes) || work_of(sizes) > most_work) return;
        CheckCase check{{sizes, values, seed_ + cases.size()}, {}};
        check.options.placing = placing;
        check.options.in_place = cases.size() % 2 == 1;
        // The first ones have usual sizes in each placing.
        check.options.watches_tasks = !is_for_cuda_ && values == plain() && num_watched_++ < kMostWatched;
        static_assert(std::size(kThreads) == std::size(kMultiprocessors), "one for each");
        const size_t machine = cases.size() % std::size(kThreads);
        check.options.num_threads = is_for_cuda_ ? kMultiprocessors[machine] : kThreads[machine];
        if (std::ranges::none_of(cases, [&](const CheckCase& other) { return is_same(other, check); })) {
            cases.push_back(check);
        }
    }

    // Every other case has plain values.
    ValueClass next_class() {
        ++class_;
        if (class_ % 2 == 0) return plain();
        const auto values = kValueClasses[class_ / 2 % std::size(kValueClasses)];
        return takes(values) ? values : plain();
    }

    const Operation& operation_;
    std::vector<ValueClass> classes_;  // empty: all
    double most_work_;
    double most_real_work_;
    bool is_for_cuda_;
    uint64_t seed_;
    size_t class_ = 0;
    double aligned_work_ = 0;  // flops so far
    // Cases whose tasks are watched: every access takes long.
    static constexpr int kMostWatched = 3;
    int num_watched_ = 0;
    int num_real_watched_ = 0;
};

// Every size from its edges.
Sizes sizes_by_chance(const Operation& operation, Prng& prng) {
    Sizes sizes{};
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        const auto& edges = operation.sizes[i].edges;
        sizes[i] = edges[prng.below(edges.size())];
    }
    return sizes;
}

int64_t greatest_edge(const SizeSpec& spec) { return *std::ranges::max_element(spec.edges); }

// No published model has more than 128 heads, groups and the like; an emulated kernel takes a block or more for each.
bool may_be_constant(const SizeSpec& spec, int64_t constant) {
    constexpr int64_t kMostParts = 128;
    const bool counts_parts = spec.real.empty() && greatest_edge(spec) <= 10;
    return !counts_parts || constant <= kMostParts;
}

// Each long size with few rows and with more than a tile has, thin otherwise: a kernel may add in another order from
// some length on, and in some of its blocks alone. In integers no order shows.
void add_long(const Operation& operation, const Sizes& thin_sizes, CaseList& list) {
    constexpr int64_t kLong = 128, kFew = 3, kMany = 65;
    for (size_t i = 1; i < operation.sizes.size(); ++i) {
        if (operation.sizes[i].is_choice || greatest_edge(operation.sizes[i]) <= kLong) continue;
        for (const int64_t count : {kFew, kMany}) {
            Sizes sizes = thin_sizes;
            sizes[0] = count;
            sizes[i] = greatest_edge(operation.sizes[i]);
            list.add_real(sizes, list.plain());
        }
    }
}

// Sizes of real batches and contexts, and constants of the source. Of a size without real ones, the constants alone.
void add_real(const Operation& operation, const GivenSizes& given, CaseList& list) {
    Sizes thin_sizes{};
    for (size_t i = 0; i < operation.sizes.size(); ++i) thin_sizes[i] = thin(operation.sizes[i]);
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        const SizeSpec& spec = operation.sizes[i];
        if (spec.is_choice) continue;
        std::set<int64_t> values;
        if (given.with_real) values.insert(spec.real.begin(), spec.real.end());
        for (const int64_t constant : given.constants) {
            if (may_be_constant(spec, constant)) values.insert({constant - 1, constant, constant + 1});
        }
        for (auto value = values.lower_bound(spec.least); value != values.end(); ++value) {
            Sizes sizes = thin_sizes;
            sizes[i] = *value;
            list.add_real(sizes);
        }
    }
    if (given.with_real) add_long(operation, thin_sizes, list);
}

// A number of a model's parts that no published shape has to be cut in (groups, chosen experts) is not tried far above
// its edges: a plain kernel may take the cube of it.
bool is_far_above(const SizeSpec& spec, int64_t value) {
    return !spec.is_cut && spec.real.empty() && value > 2 * greatest_edge(spec);
}

// Sizes that are multiples together of what vectors, warps and tiles have: a fast way asks for several of them.
void add_multiples(const Operation& operation, CaseList& list) {
    Sizes thin_sizes{};
    std::vector<size_t> free;
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        thin_sizes[i] = thin(operation.sizes[i]);
        if (!operation.sizes[i].is_choice) free.push_back(i);
    }
    const auto set = [&](Sizes& sizes, size_t i, int64_t multiple) {
        if (!is_far_above(operation.sizes[i], multiple)) sizes[i] = multiple;
    };
    constexpr int64_t kVector = 8, kMultiples[] = {4, 8, 16, 32, 64, 128};
    for (const int64_t multiple : kMultiples) {
        Sizes all = thin_sizes;
        for (const size_t i : free) set(all, i, multiple);
        list.add_aligned(all);
        if (multiple == kVector) list.add_first_aligned(all);
    }
    for (const int64_t multiple : kMultiples) {
        for (size_t i = 0; i < free.size(); ++i) {
            for (size_t j = i + 1; j < free.size(); ++j) {
                Sizes two = thin_sizes;
                set(two, free[i], multiple);
                set(two, free[j], multiple);
                list.add_aligned(two);
            }
        }
    }
}

// Lengths and alignments at which a kernel with vector loads reads beyond its row.
void add_vectors(const Operation& operation, CaseList& list) {
    constexpr int64_t kVector = 8;
    const Sizes usual = usual_sizes(operation);
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        for (const int64_t edge : operation.sizes[i].edges) {
            if (edge % kVector != 0 || edge == 0) continue;
            for (int64_t more = 0; more < 3; ++more) {
                Sizes sizes = usual;
                sizes[0] += more;
                sizes[i] = edge;
                list.add(sizes, list.plain(), Placing::kOdd);
            }
        }
    }
}

// Values to try instead of `now`, least first.
std::vector<int64_t> smaller(const SizeSpec& spec, int64_t now) {
    std::vector<int64_t> values;
    for (const std::vector<int64_t>* list : {&spec.edges, &spec.real}) {
        std::ranges::copy_if(*list, std::back_inserter(values), [now](int64_t value) { return value < now; });
    }
    std::ranges::sort(values);
    values.erase(std::ranges::unique(values).begin(), values.end());
    return values;
}

// The least value from which on `fails` holds, between one for which it does not and one for which it does. Each try
// costs as much as the case: halves, and not one after another.
template <typename Try>
void bisect(int64_t passes, int64_t fails, const Try& fails_at) {
    while (fails - passes > 1) {
        const int64_t middle = passes + (fails - passes) / 2;
        (fails_at(middle) ? fails : passes) = middle;
    }
}

}  // namespace

bool is_real(const Operation& operation, const Sizes& sizes) {
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        if (sizes[i] > greatest_edge(operation.sizes[i])) return true;
    }
    return false;
}

std::vector<CheckCase> check_cases(const Operation& operation, const KernelInfo& kernel, Effort effort, uint64_t seed,
                                   const GivenSizes& given) {
    CaseList list(operation, kernel, effort, seed, given);
    for (const Sizes& sizes : given.shapes) list.add_all(sizes);
    for (const ValueClass values : kValueClasses) {
        for (const Placing placing : kPlacings) list.add(usual_sizes(operation), values, placing);
    }
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        for (const int64_t edge : operation.sizes[i].edges) {
            Sizes sizes = usual_sizes(operation);
            sizes[i] = edge;
            list.add(sizes);
        }
    }
    // A choice selects separate code: it is combined with every class of values.
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        for (const int64_t choice : operation.sizes[i].is_choice ? operation.sizes[i].edges : std::vector<int64_t>()) {
            Sizes sizes = usual_sizes(operation);
            if (sizes[i] == choice) continue;
            sizes[i] = choice;
            for (const ValueClass values : kValueClasses) list.add(sizes, values, kPlacings[list.cases.size() % 3]);
        }
    }
    Prng prng(seed);
    const int by_chance = effort == Effort::kShort ? 8 : 80;
    for (int i = 0; i < by_chance; ++i) list.add(sizes_by_chance(operation, prng));
    for (const Sizes& sizes : effort == Effort::kShort ? std::vector<Sizes>() : operation.published()) {
        if (const auto cheap = list.made_cheap(sizes)) list.add(*cheap);
    }
    add_vectors(operation, list);
    if (given.with_real) add_multiples(operation, list);
    add_real(operation, given, list);
    return list.cases;
}

std::vector<KernelCase> invariance_cases(const Operation& operation, const KernelInfo& kernel, Effort effort,
                                         uint64_t seed, const GivenSizes& given) {
    CaseList list(operation, kernel, effort, seed, given);
    std::vector<KernelCase> cases;
    for (const Sizes& sizes : given.shapes) cases.push_back({sizes, list.plain(), seed + cases.size()});
    Prng prng(seed);
    const size_t wanted = cases.size() + (effort == Effort::kShort ? 6 : 24);
    for (int tries = 0; tries < 1000 && cases.size() < wanted; ++tries) {
        Sizes sizes = sizes_by_chance(operation, prng);
        if (sizes[0] < 2 || !go_together(operation, sizes)) continue;
        if (!list.is_cheap(sizes)) continue;
        // Some neighbours are NaN: a kernel that adds them times zero gets NaN.
        const bool is_wild = cases.size() % 4 == 3 && list.takes(ValueClass::kNotFinite);
        const ValueClass values = is_wild ? ValueClass::kNotFinite : list.plain();
        cases.push_back({sizes, values, seed + cases.size()});
    }
    add_real(operation, given, list);
    for (const CheckCase& check : list.cases) {
        if (check.one.sizes[0] < 2) continue;
        cases.push_back({check.one.sizes, list.plain(), check.one.seed});
    }
    return cases;
}

WorkloadCases workload_cases(const KernelInfo& kernel, Effort effort, const Workload& workload) {
    // Few calls, and real ones: each may cost more.
    constexpr double kTimesMore = 20;
    WorkloadCases found;
    for (const CapturedCall& call : workload.calls) {
        const Operation& operation = *find_operation(workload.operation);
        if (flops_of(operation, call.one) > kTimesMore * most_work(kernel, effort)) {
            ++found.num_left_out;
            continue;
        }
        CheckCase check{call.one, {}};
        check.options.placing = kPlacings[found.cases.size() % std::size(kPlacings)];
        found.cases.push_back(check);
    }
    return found;
}

namespace {

// Of a captured call: some of its items, or some rows of the one that is left.
std::vector<KernelCase> parts_of(const Operation& operation, const KernelCase& one) {
    const Arguments call = make_arguments(operation, one);
    const auto count = std::ssize(call.item_rows);
    std::vector<KernelCase> parts;
    const auto add = [&](const Arguments& part) {
        parts.push_back({one.sizes, one.values, one.seed, captured_of(part)});
    };
    const auto add_items = [&](int64_t first, int64_t end) {
        std::vector<int64_t> items(static_cast<size_t>(end - first));
        std::iota(items.begin(), items.end(), first);
        add(of_items(call, items));
    };
    if (count > 1) {
        add_items(0, count / 2);
        add_items(count / 2, count);
        if (count > 2) add_items(0, count - 1);
    } else if (call.item_rows[0] > 1) {
        add(of_rows(call, 0, 0, call.item_rows[0] / 2));
        add(of_rows(call, 0, call.item_rows[0] / 2, call.item_rows[0] - call.item_rows[0] / 2));
        add(of_rows(call, 0, 0, call.item_rows[0] - 1));
    }
    return parts;
}

}  // namespace

Failure smallest_failure(const Operation& operation, const Failure& failure, const Fails& fails) {
    Failure smallest = failure;
    smallest.is_smallest = true;
    const auto try_one = [&](const KernelCase& one) {
        auto found = fails(one);
        if (!found || found->verdict != failure.verdict) return false;
        smallest = *std::move(found);
        smallest.is_smallest = true;
        return true;
    };
    if (failure.one.captured) {
        // Made values may do as well. Else what was captured can only be taken apart.
        KernelCase made = failure.one;
        made.captured.reset();
        bool smaller = !try_one(made);
        for (int round = 0; smaller && round < 40; ++round) {
            smaller = std::ranges::any_of(parts_of(operation, smallest.one), try_one);
        }
        if (smallest.one.captured) return smallest;
    }
    bool shrunk = true;
    for (int round = 0; shrunk && round < 40; ++round) {
        shrunk = false;
        for (size_t i = 0; i < operation.sizes.size(); ++i) {
            const SizeSpec& spec = operation.sizes[i];
            const auto fails_at = [&](int64_t value) {
                KernelCase one = smallest.one;
                one.sizes[i] = value;
                return go_together(operation, one.sizes) && try_one(one);
            };
            const int64_t before = smallest.one.sizes[i];
            const std::vector<int64_t> values = smaller(spec, before);
            const auto least = std::ranges::find_if(values, fails_at);
            // Few edges are choices: there is nothing between them.
            if (spec.edges.size() > 4) {
                const int64_t passes = least == values.begin() ? spec.least - 1 : *std::prev(least);
                bisect(passes, smallest.one.sizes[i], fails_at);
            }
            shrunk = shrunk || smallest.one.sizes[i] < before;
        }
    }
    for (const ValueClass values : {ValueClass::kIntegers, ValueClass::kNormal}) {
        KernelCase one = smallest.one;
        if (one.values == values) break;
        one.values = values;
        if (try_one(one)) break;
    }
    return smallest;
}

namespace {

// The case with another choice: a kernel may have one kind of gate or router alone, and then takes few of the others.
std::vector<CheckCase> otherwise_chosen(const Operation& operation, const CheckCase& check) {
    std::vector<CheckCase> others;
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        for (const int64_t choice : operation.sizes[i].is_choice ? operation.sizes[i].edges : std::vector<int64_t>()) {
            CheckCase other = check;
            other.one.sizes[i] = choice;
            if (choice != check.one.sizes[i] && go_together(operation, other.one.sizes)) others.push_back(other);
        }
    }
    return others;
}

// Judges the case, or one with another choice that is in neither list, if the kernel does not take it.
Judgement judge_taken(KernelHost& host, const KernelInfo& kernel, const Operation& operation, CheckCase& check,
                      const std::vector<CheckCase>& cases, std::vector<CheckCase>& more) {
    Judgement judgement = judge(host, kernel, operation, check);
    if (judgement.supported || check.one.captured) return judgement;
    for (const CheckCase& other : otherwise_chosen(operation, check)) {
        const auto is_it = [&](const CheckCase& known) { return is_same(known, other); };
        if (std::ranges::any_of(cases, is_it) || std::ranges::any_of(more, is_it)) continue;
        judgement = judge(host, kernel, operation, other);
        if (!judgement.supported) continue;
        check = other;
        more.push_back(other);
        break;
    }
    return judgement;
}

// The same kernel, of the profile whose bound every order of sums keeps.
KernelInfo with_a_bound(KernelInfo kernel) {
    kernel.profile = "fast";
    return kernel;
}

}  // namespace

CheckResult check_kernel(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                         const std::vector<CheckCase>& cases) {
    CheckResult result;
    std::vector<CheckCase> more;
    for (CheckCase check : cases) {
        Judgement judgement = judge_taken(host, kernel, operation, check, cases, more);
        if (!judgement.supported) {
            ++result.num_unsupported;
            continue;
        }
        ++result.num_cases;
        for (const std::string& note : judgement.notes) {
            if (std::ranges::find(result.notes, note) == result.notes.end()) result.notes.push_back(note);
        }
        if (!judgement.failure) continue;
        const Fails fails = [&](const KernelCase& one) -> std::optional<Failure> {
            const auto is_like = [&one](const CheckCase& other) {
                return other.one.captured || other.one.values == one.values;
            };
            if (std::ranges::none_of(cases, is_like)) return std::nullopt;  // a class of values that is left out
            return judge(host, kernel, operation, {one, check.options}).failure;
        };
        result.failure = judgement.failure->verdict == Verdict::kHang
                             ? *judgement.failure  // each try would take as long again
                             : smallest_failure(operation, *judgement.failure, fails);
        if (result.failure->one.captured) return result;
        KernelCase integers = result.failure->one;
        integers.values = ValueClass::kIntegers;
        const bool tells = operation.sums_exactly && result.failure->verdict == Verdict::kWrongBits;
        CheckCase on_one{result.failure->one, check.options};
        on_one.options.num_threads = 1;
        if (kernel.machine == "cpu" && check.options.num_threads > 1 && result.failure->verdict != Verdict::kHang &&
            result.failure->verdict != Verdict::kNotDeterministic && !judge(host, kernel, operation, on_one).failure) {
            const bool is_uncovered = result.failure->verdict == Verdict::kUnwritten;
            result.failure->hint = fmt::format("right with num_threads 1, and not with {}{}", check.options.num_threads,
                                               is_uncovered ? ": its tasks do not cover what they should" : "");
            return result;
        }
        if (tells && integers != result.failure->one &&
            !judge(host, kernel, operation, {integers, check.options}).failure &&
            !judge(host, with_a_bound(kernel), operation, {result.failure->one, check.options}).failure) {
            result.failure->hint =
                "right on small integers, where every order of sums is exact: it adds in another order";
        }
        return result;
    }
    return result;
}

}  // namespace verbatim::sandbox
