#include "reference/records/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "engine/base/check.h"

namespace verbatim::records {
namespace {

using reference::buffer_name;
using reference::walk_op_name;

constexpr size_t kMaxTagBytes = 2;  // of records made by 0.1.0's first programs; today's have one

// C2, as a key.
struct Place {
    int64_t step = 0;
    size_t order = 0;
    int rank = 0;  // operation, layer, logits, token, state
    int64_t op = 0;
    int64_t position = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
};

// Shares whose sums can be added up: positions of each follow those of the one before.
struct Stretch {
    std::vector<Share> shares;
    [[nodiscard]] int64_t begin() const { return shares.front().sequence().begin; }
    [[nodiscard]] int64_t end() const { return shares.back().sequence().end; }
};

Digest sum_of_op(const Stretch& stretch, size_t op) {
    Digest sum;
    for (const Share& share : stretch.shares) {
        sum.high += share.sequence().ops[op].high;
        sum.low += share.sequence().ops[op].low;
    }
    return sum;
}

// Positions with logits. The last token of a chunk has none, and had some if the request was preempted since.
std::vector<int64_t> positions_of_logits(const Stretch& stretch) {
    std::vector<int64_t> positions;
    for (const Share& share : stretch.shares) {
        const SequenceRecord& sequence = share.sequence();
        for (int64_t i = sequence.end - std::ssize(sequence.logits); i < sequence.end; ++i) positions.push_back(i);
    }
    return positions;
}

uint64_t sum_of_layers(const Stretch& stretch) {
    uint64_t sum = 0;
    for (const Share& share : stretch.shares) sum += share.sequence().layers;
    return sum;
}

// The tags of a share are this wide; 0: it has none of so many layers.
size_t tag_bytes(const SequenceRecord& sequence, size_t num_layers) {
    const size_t width = num_layers == 0 ? 0 : sequence.layer_tags.size() / num_layers;
    return width <= kMaxTagBytes && sequence.layer_tags.size() == width * num_layers ? width : 0;
}

// The lowest byte of a layer's sum.
uint8_t tag_of(const Stretch& stretch, size_t layer, size_t num_layers) {
    uint8_t tag = 0;
    for (const Share& share : stretch.shares) {
        const SequenceRecord& sequence = share.sequence();
        tag = static_cast<uint8_t>(tag +
                                   static_cast<uint8_t>(sequence.layer_tags[tag_bytes(sequence, num_layers) * layer]));
    }
    return tag;
}

// Each position's first share, where they do not cut each other.
std::vector<Share> first_shares(const std::vector<Share>& all) {
    std::vector<Share> kept;
    int64_t high_water = 0;
    for (const Share& share : all) {
        const SequenceRecord& sequence = share.sequence();
        if (sequence.begin < high_water || sequence.end <= sequence.begin) continue;
        kept.push_back(share);
        high_water = sequence.end;
    }
    return kept;
}

bool same_cut(const std::vector<Share>& a, const std::vector<Share>& b) {
    const size_t count = std::min(a.size(), b.size());
    for (size_t i = 0; i < count; ++i) {
        if (a[i].sequence().begin != b[i].sequence().begin || a[i].sequence().end != b[i].sequence().end) return false;
    }
    return true;
}

using Pairs = std::vector<std::pair<Stretch, Stretch>>;

// Stretches of both over the same positions, each as short as can be.
Pairs common_stretches(const std::vector<Share>& all_a, const std::vector<Share>& all_b) {
    Pairs pairs;
    if (same_cut(all_a, all_b)) {  // with what was computed again
        for (size_t i = 0; i < std::min(all_a.size(), all_b.size()); ++i) pairs.push_back({{{all_a[i]}}, {{all_b[i]}}});
        return pairs;
    }
    const std::vector<Share> a = first_shares(all_a);
    const std::vector<Share> b = first_shares(all_b);
    size_t i = 0;
    size_t j = 0;
    while (i < a.size() && j < b.size()) {
        if (a[i].sequence().begin != b[j].sequence().begin) {
            ++(a[i].sequence().begin < b[j].sequence().begin ? i : j);
            continue;
        }
        std::pair<Stretch, Stretch> pair{{{a[i++]}}, {{b[j++]}}};
        const auto extend = [](Stretch& stretch, const std::vector<Share>& from, size_t& next) {
            if (next == from.size() || from[next].sequence().begin != stretch.end()) return false;
            stretch.shares.push_back(from[next++]);
            return true;
        };
        bool whole = true;
        while (whole && pair.first.end() != pair.second.end()) {
            whole = pair.first.end() < pair.second.end() ? extend(pair.first, a, i) : extend(pair.second, b, j);
        }
        if (whole) pairs.push_back(std::move(pair));
    }
    return pairs;
}

// That the request was computed in.
int64_t last_step(const RequestIndex& request) {
    return request.shares.empty() ? request.submitted_step : request.shares.back().step->step;
}

// Compares what two records say of one request.
class RequestComparison {
public:
    RequestComparison(const RequestIndex& a, const RequestIndex& b, const WalkPoints& points, ComparedCounts& counts)
        : a_(a), b_(b), points_(points), counts_(counts) {}

    // Every difference, with its place.
    void run(const std::function<void(const Place&, RecordDifference)>& report) {
        report_ = &report;
        compare_tokens();
        for (const auto& [mine, other] : common_stretches(a_.shares, b_.shares)) {
            if (mine.end() <= comparable_end_) compare_stretch(mine, other);
        }
        for (const auto& [position, mine] : a_.logits) {
            const auto other = b_.logits.find(position);
            if (position >= comparable_end_ || other == b_.logits.end()) continue;
            ++counts_.logits;
            if (mine.sum == other->second.sum) continue;
            RecordDifference difference = at(DifferenceKind::kLogits, mine.step, other->second.step, position);
            difference.layer = static_cast<int32_t>(points_.layers().size());
            difference.op = "logits";
            report({mine.step, mine.order, 2, 0, position}, std::move(difference));
        }
        for (const auto& [length, mine] : a_.states) {
            const auto other = b_.states.find(length);
            if (length > comparable_end_ || other == b_.states.end()) continue;
            ++counts_.states;
            if (mine.digest == other->second.digest) continue;
            RecordDifference difference = at(DifferenceKind::kState, mine.step, other->second.step, length);
            difference.op = "state";
            report({mine.step, kLast, 4, 0, length}, std::move(difference));
        }
    }

private:
    static constexpr size_t kLast = std::numeric_limits<size_t>::max();

    [[nodiscard]] RecordDifference at(DifferenceKind kind, int64_t step, int64_t computed_step,
                                      int64_t position) const {
        RecordDifference difference;
        difference.kind = kind;
        difference.step = step;
        difference.computed_step = computed_step;
        difference.request = a_.id;
        difference.computed_request = b_.id;
        difference.position = position;
        difference.begin = position;
        difference.end = position + 1;
        return difference;
    }

    void compare_tokens() {
        const size_t count = std::min(a_.tokens.size(), b_.tokens.size());
        size_t i = 0;
        while (i < count && a_.tokens[i].token == b_.tokens[i].token) ++i;
        counts_.tokens += static_cast<int64_t>(i);
        // What goes on behind the end of the other one; a turn that was cut short may have had more.
        const bool goes_on =
            (a_.tokens.size() > count && b_.ended_by_itself) || (b_.tokens.size() > count && a_.ended_by_itself);
        if (i == count && !goes_on) return;
        const bool in_a = i < a_.tokens.size();
        const bool in_b = i < b_.tokens.size();
        const int64_t position = a_.num_prompt_tokens + static_cast<int64_t>(i) - 1;  // that it was drawn at
        RecordDifference difference = at(DifferenceKind::kToken, in_a ? a_.tokens[i].step : last_step(a_),
                                         in_b ? b_.tokens[i].step : -1, position);
        difference.op = "token";
        difference.layer = static_cast<int32_t>(points_.layers().size());
        if (in_a) difference.recorded = a_.tokens[i].token;
        if (in_b) difference.computed = b_.tokens[i].token;
        comparable_end_ = position + 1;
        size_t order = kLast;
        if (const auto drawn = a_.logits.find(position); drawn != a_.logits.end()) order = drawn->second.order;
        const Place place{difference.step, order, 3, 0, position};
        (*report_)(place, std::move(difference));
    }

    void compare_stretch(const Stretch& mine, const Stretch& other) {
        const auto all = [](const Stretch& stretch, const auto& holds) {
            return std::ranges::all_of(stretch.shares, [&](const Share& share) { return holds(share.sequence()); });
        };
        const auto has_ops = [&](const SequenceRecord& s) { return s.ops.size() == points_.size(); };
        const auto has_layers = [&](const SequenceRecord& s) { return tag_bytes(s, points_.layers().size()) > 0; };
        if (all(mine, has_ops) && all(other, has_ops)) {
            compare_ops(mine, other);
        } else if (all(mine, has_layers) && all(other, has_layers)) {
            compare_layers(mine, other);
        }
    }

    void compare_ops(const Stretch& mine, const Stretch& other) {
        const bool same_logits = positions_of_logits(mine) == positions_of_logits(other);
        const size_t num_ops = same_logits ? points_.size() : points_.first_of_head();
        counts_.operations += static_cast<int64_t>(num_ops);
        for (size_t op = 0; op < num_ops; ++op) {
            if (sum_of_op(mine, op) == sum_of_op(other, op)) continue;
            const reference::WalkPoint& point = points_[op];
            RecordDifference difference = stretch_difference(DifferenceKind::kOperation, mine, other);
            difference.op = fmt::format("{} {}", walk_op_name(point.op), buffer_name(point.buffer));
            difference.layer = point.layer;
            difference.op_index = static_cast<int64_t>(op);
            const Place place{difference.step, mine.shares.front().order, 0, difference.op_index, mine.begin()};
            (*report_)(place, std::move(difference));
            return;
        }
    }

    void compare_layers(const Stretch& mine, const Stretch& other) {
        const size_t num_layers = points_.layers().size();
        counts_.operations += static_cast<int64_t>(num_layers);
        if (sum_of_layers(mine) == sum_of_layers(other)) return;
        RecordDifference difference = stretch_difference(DifferenceKind::kLayer, mine, other);
        difference.op = "layer residual";
        for (size_t layer = 0; layer < num_layers; ++layer) {
            if (tag_of(mine, layer, num_layers) == tag_of(other, layer, num_layers)) continue;
            difference.layer = static_cast<int32_t>(layer);
            difference.op_index = static_cast<int64_t>(points_.layers()[layer]);
            break;
        }
        const Place place{difference.step, mine.shares.front().order, 1, difference.op_index, mine.begin()};
        (*report_)(place, std::move(difference));
    }

    [[nodiscard]] RecordDifference stretch_difference(DifferenceKind kind, const Stretch& mine,
                                                      const Stretch& other) const {
        RecordDifference difference =
            at(kind, mine.shares.front().step->step, other.shares.front().step->step, mine.begin());
        difference.end = mine.end();
        if (difference.end - difference.begin > 1) difference.position = -1;
        return difference;
    }

    const RequestIndex& a_;
    const RequestIndex& b_;
    const WalkPoints& points_;
    ComparedCounts& counts_;
    int64_t comparable_end_ = std::numeric_limits<int64_t>::max();  // of the positions whose inputs are the same
    const std::function<void(const Place&, RecordDifference)>* report_ = nullptr;
};

// Keeps the first difference of each kind.
struct FirstOf {
    std::optional<Place> place;
    std::optional<RecordDifference> difference;

    void take(const Place& at, const RecordDifference& candidate) {
        if (place && !(at < *place)) return;
        place = at;
        difference = candidate;
    }
};

bool is_about_tokens(DifferenceKind kind) {
    return kind == DifferenceKind::kToken || kind == DifferenceKind::kPrompt || kind == DifferenceKind::kRequest;
}

bool plans_are_the_same(const RunIndex& a, const RunIndex& b) {
    if (a.num_steps() != b.num_steps()) return false;
    for (const Entry& entry : a.record().entries) {
        const auto* mine = std::get_if<StepRecord>(&entry);
        if (mine == nullptr) continue;
        const StepRecord* other = b.step(mine->step);
        if (other == nullptr || mine->plan != other->plan || mine->digest != other->digest) return false;
    }
    return true;
}

}  // namespace

std::string to_string(const RecordDifference& d) {
    const auto number = [](int64_t value) { return value < 0 ? std::string("?") : fmt::format("{}", value); };
    std::string text = fmt::format("step {}, request {}", number(d.step), index(d.request));
    if (d.position >= 0) {
        text += fmt::format(", position {}", d.position);
    } else if (d.begin >= 0) {
        text += fmt::format(", position {}..{}", d.begin, d.end - 1);
    }
    if (d.layer >= -1) text += fmt::format(", layer {}", d.layer);
    text += ", " + d.op;
    if (d.element >= 0) text += fmt::format(", element {}", d.element);
    if (d.recorded || d.computed) {
        const auto value = [](const auto& of) { return of ? fmt::format("{:.9g}", *of) : std::string("nothing"); };
        text += fmt::format(": recorded {}, computed {}", value(d.recorded), value(d.computed));
    }
    if (d.ulps) text += fmt::format(", {} ulps apart", *d.ulps);
    if (d.inputs_equal) text += *d.inputs_equal ? ", from equal inputs" : ", from inputs that differ";
    return text;
}

Comparison compare(const RunIndex& recorded, const RunIndex& computed, const WalkPoints& points,
                   const CompareOptions& options) {
    Comparison comparison;
    comparison.same_plans = plans_are_the_same(recorded, computed);
    FirstOf first;
    FirstOf first_cause;
    const auto take = [&](const Place& place, const RecordDifference& difference) {
        first.take(place, difference);
        if (!is_about_tokens(difference.kind)) first_cause.take(place, difference);
    };
    const auto whole_request = [&](DifferenceKind kind, const char* op, const RequestIndex& mine, int64_t step) {
        RecordDifference difference;
        difference.kind = kind;
        difference.op = op;
        difference.step = step;
        difference.request = mine.id;
        take({step, 0, -1, 0, 0}, difference);
    };
    ShareOfRequests shares(recorded, computed, options.sides);
    for (const auto& [name, mine] : recorded.requests()) {
        if (!options.ordinary && !mine.deterministic) {
            ++comparison.num_ordinary;
            shares.ordinary(mine);
            continue;
        }
        comparison.num_unanswered += mine.unanswered() ? 1 : 0;
        const RequestIndex* other = computed.find(name);
        if (other == nullptr || (mine.is_started() && !other->is_started())) {
            shares.only_in_first(mine);
            if (mine.unanswered()) continue;
            ++comparison.num_missing;
            if (options.is_complete)
                whole_request(DifferenceKind::kRequest, "request", mine,
                              mine.shares.empty() ? mine.submitted_step : mine.shares.front().step->step);
            continue;
        }
        if (!mine.is_started()) {  // it left before it was started
            shares.never_started(mine, *other);
            continue;
        }
        if (mine.prompt != other->prompt) {
            ++comparison.num_other_prompts;
            shares.other_prompt(mine);
            if (options.same_prompts) whole_request(DifferenceKind::kPrompt, "prompt", mine, mine.submitted_step);
            continue;
        }
        comparison.num_requests += mine.unanswered() ? 0 : 1;
        bool differs = false;
        ComparedCounts compared;
        RequestComparison(mine, *other, points, compared)
            .run([&](const Place& place, const RecordDifference& difference) {
                differs = true;
                take(place, difference);
            });
        comparison.num_different += differs ? 1 : 0;
        comparison.compared += compared;
        shares.both(mine, *other, compared, differs);
    }
    for (const auto& [name, other] : computed.requests()) {
        if (recorded.find(name) != nullptr) continue;
        !options.ordinary && !other.deterministic ? shares.ordinary(other) : shares.only_in_second(other);
    }
    comparison.share = shares.share();
    comparison.first = options.follow_tokens && first_cause.difference ? first_cause.difference : first.difference;
    return comparison;
}

std::vector<std::string> what_differs(const RunDescription& recorded, const RunDescription& computed) {
    std::vector<std::string> found;
    const auto look = [&](const char* what, const std::string& a, const std::string& b) {
        if (a != b) found.push_back(fmt::format("{}: recorded {}, here {}", what, a, b));
    };
    if (recorded.model_digest != computed.model_digest) look("model", recorded.model, computed.model);
    look("model digest", recorded.model_digest.hex(), computed.model_digest.hex());
    look("numerics", recorded.numerics, computed.numerics);
    look("numerics of ordinary requests", recorded.ordinary_numerics, computed.ordinary_numerics);
    return found;
}

}  // namespace verbatim::records
