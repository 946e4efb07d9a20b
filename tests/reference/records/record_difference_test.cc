// The first difference of two written records, and how much of them is compared.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "reference/records/comparison.h"
#include "tests/reference/records/written_record.h"

namespace verbatim::tests {
namespace {

using namespace records;
using End = WrittenTurn::End;

const CompareOptions kOpen = {.is_complete = false, .same_prompts = false, .ordinary = false};

Comparison compared(const WrittenRecord& a, const WrittenRecord& b, const CompareOptions& options = {}) {
    return compare(RunIndex(a.record), RunIndex(b.record), written_points(), options);
}

// Every field.
std::string difference(const Comparison& comparison) {
    if (!comparison.first) return "none";
    const RecordDifference& d = *comparison.first;
    const auto value = [](const auto& of) { return of ? fmt::format("{}", *of) : std::string("nothing"); };
    return fmt::format("kind {}, steps {}/{}, requests {}/{}, [{}, {}) at {}, layer {}, {}, op {}, {}/{}",
                       static_cast<int>(d.kind), d.step, d.computed_step, index(d.request), index(d.computed_request),
                       d.begin, d.end, d.position, d.layer, d.op, d.op_index, value(d.recorded), value(d.computed));
}

std::string counts(const Comparison& c) {
    return fmt::format("{} tokens, {} logits, {} operations, {} states; {} requests, {} different", c.compared.tokens,
                       c.compared.logits, c.compared.operations, c.compared.states, c.num_requests, c.num_different);
}

int num_layers() { return static_cast<int>(written_points().layers().size()); }
int num_ops() { return static_cast<int>(written_points().size()); }

// Positions of request `id` with a sum for each operation, or each layer: what `at` adds to that of the first.
SequenceRecord with_ops(int64_t begin, int64_t end, int64_t id = 0) {
    SequenceRecord sequence{.request = RequestId{id}, .begin = begin, .end = end};
    sequence.ops.assign(written_points().size(), Digest{static_cast<uint64_t>(end - begin), 7});
    for (Digest& sum : sequence.ops) sum.low *= static_cast<uint64_t>(end - begin);
    return sequence;
}
SequenceRecord with_layers(int64_t begin, int64_t end) {
    SequenceRecord sequence{.begin = begin, .end = end, .layers = 1000 * static_cast<uint64_t>(end - begin)};
    sequence.layer_tags.assign(written_points().layers().size(), static_cast<char>(100 * (end - begin)));
    return sequence;
}

// One request that computes these.
WrittenRecord computes(const std::vector<SequenceRecord>& sequences, DigestLevel level = DigestLevel::kOps) {
    WrittenRecord record(level);
    record.submits(0, "c").starts(0, 4);
    for (const SequenceRecord& sequence : sequences) record.computes(sequence).steps();
    record.commits(0).ends();
    return record;
}

// A step with everything that a record has of it.
struct OneStep {
    SequenceRecord sequence = with_ops(0, 4);
    uint64_t logits = 5;
    TokenId token = 11;
    uint64_t state = 40;

    [[nodiscard]] WrittenRecord written() const {
        WrittenRecord record(DigestLevel::kOps);
        SequenceRecord with_logits = sequence;
        with_logits.logits = {logits};
        record.submits(0, "c").starts(0, 4).computes(with_logits).steps().reports(0, {token});
        record.publishes(0, 4, state).commits(0).ends();
        return record;
    }
};

TEST(RecordDifference, TheEarliestValueOfASequenceComesFirst) {
    const WrittenRecord record = OneStep().written();
    OneStep other;
    other.sequence.ops[0].low += 1;
    other.logits = 6;
    other.token = 12;
    other.state = 41;
    const reference::WalkPoint& embedding = written_points()[0];
    EXPECT_EQ(difference(compared(record, other.written())),
              fmt::format("kind 0, steps 0/0, requests 0/0, [0, 4) at -1, layer {}, {} {}, op 0, nothing/nothing",
                          embedding.layer, walk_op_name(embedding.op), buffer_name(embedding.buffer)));
    EXPECT_EQ(counts(compared(record, other.written())),
              fmt::format("0 tokens, 1 logits, {} operations, 1 states; 1 requests, 1 different", num_ops()));
    other.sequence = with_ops(0, 4);
    other.sequence.ops[1].high += 1;
    EXPECT_EQ(compared(record, other.written()).first->op_index, 1);
    other.sequence = with_ops(0, 4);
    EXPECT_EQ(difference(compared(record, other.written())),
              fmt::format("kind 2, steps 0/0, requests 0/0, [3, 4) at 3, layer {}, logits, op -1, nothing/nothing",
                          num_layers()));
    other.logits = 5;
    EXPECT_EQ(difference(compared(record, other.written())),
              fmt::format("kind 3, steps 0/0, requests 0/0, [3, 4) at 3, layer {}, token, op -1, 11/12", num_layers()));
    other.token = 11;
    EXPECT_EQ(difference(compared(record, other.written())),
              "kind 4, steps 0/0, requests 0/0, [4, 5) at 4, layer -2, state, op -1, nothing/nothing");
    other.state = 40;
    EXPECT_EQ(difference(compared(record, other.written())), "none");
    EXPECT_EQ(counts(compared(record, other.written())),
              fmt::format("1 tokens, 1 logits, {} operations, 1 states; 1 requests, 0 different", num_ops()));
}

// A state of fewer tokens, in the step of a token of which no logits were recorded.
TEST(RecordDifference, ATokenComesBeforeTheStatesOfItsStep) {
    WrittenRecord a(DigestLevel::kHeads);
    WrittenRecord b(DigestLevel::kHeads);
    for (const auto& [record, token, digest] : {std::tuple{&a, 11, 20}, {&b, 12, 21}}) {
        record->submits(0, "c").starts(0, 4).computes({.begin = 0, .end = 4}).steps().reports(0, {token});
        record->publishes(0, 2, static_cast<uint64_t>(digest)).commits(0).ends();
    }
    EXPECT_EQ(compared(a, b).first->op, "token");
}

TEST(RecordDifference, OfAStepsSequencesTheOldestComesFirst) {
    const auto written = [](TokenId token, uint64_t added) {
        WrittenRecord record(DigestLevel::kOps);
        SequenceRecord oldest = with_ops(0, 4, 0);
        oldest.logits = {5};
        SequenceRecord next = with_ops(0, 4, 1);
        next.ops[0].low += added;
        record.submits(0, "c").submits(1, "d").starts(0, 4).starts(1, 4).computes(oldest).computes(next).steps();
        record.reports(0, {token}).commits(0).commits(1).ends();
        return record;
    };
    EXPECT_EQ(compared(written(11, 0), written(12, 1)).first->op, "token");
    EXPECT_EQ(compared(written(11, 0), written(11, 1)).first->request, RequestId{1});
}

TEST(RecordDifference, AnAnswerThatGoesOnBehindTheOthersEndIsDifferent) {
    const WrittenRecord whole = [] {
        WrittenRecord record;
        record.steps().steps().turn({}).ends();
        return record;
    }();
    const WrittenRecord shorter = [] {
        WrittenRecord record;
        record.turn({.tokens = {11, 12}, .states = {{5, 50}}}).ends();
        return record;
    }();
    EXPECT_EQ(
        difference(compared(whole, shorter)),
        fmt::format("kind 3, steps 4/-1, requests 0/0, [5, 6) at 5, layer {}, token, op -1, 13/nothing", num_layers()));
    // In the step in which the recorded answer ended.
    EXPECT_EQ(
        difference(compared(shorter, whole)),
        fmt::format("kind 3, steps 1/4, requests 0/0, [5, 6) at 5, layer {}, token, op -1, nothing/13", num_layers()));
}

TEST(RecordDifference, TheFirstLayerIsNamed) {
    SequenceRecord other = with_layers(0, 4);
    const auto found = [&](uint64_t logits) {
        SequenceRecord recorded = with_layers(0, 4);
        recorded.logits = {5};
        other.logits = {logits};
        return difference(
            compared(computes({recorded}, DigestLevel::kLayers), computes({other}, DigestLevel::kLayers)));
    };
    other.layers += 1;
    EXPECT_EQ(found(5),
              "kind 1, steps 0/0, requests 0/0, [0, 4) at -1, layer -2, layer residual, op -1, "
              "nothing/nothing");
    other.layer_tags[0] = static_cast<char>(other.layer_tags[0] + 1);
    other.layer_tags[1] = static_cast<char>(other.layer_tags[1] + 1);
    for (const uint64_t logits : {uint64_t{5}, uint64_t{6}})
        EXPECT_EQ(found(logits), fmt::format("kind 1, steps 0/0, requests 0/0, [0, 4) at -1, layer 0, layer residual, "
                                             "op {}, nothing/nothing",
                                             written_points().layers()[0]));
    other.layer_tags[0] = with_layers(0, 4).layer_tags[0];
    EXPECT_EQ(found(5), fmt::format("kind 1, steps 0/0, requests 0/0, [0, 4) at -1, layer 1, layer residual, op {}, "
                                    "nothing/nothing",
                                    written_points().layers()[1]));
}

TEST(RecordDifference, ALayersTagsAddUpOverTheStretch) {
    SequenceRecord last = with_layers(2, 4);
    last.layers += 1;
    last.layer_tags[1] = static_cast<char>(last.layer_tags[1] + 1);
    const auto comparison = compared(computes({with_layers(0, 4), with_layers(4, 5)}, DigestLevel::kLayers),
                                     computes({with_layers(0, 2), last, with_layers(4, 5)}, DigestLevel::kLayers));
    EXPECT_EQ(comparison.first->layer, 1);
    EXPECT_EQ(comparison.compared.operations, 2 * num_layers());
}

// A request that was preempted computes its last two tokens as a chunk, and has logits at the second one alone.
TEST(RecordDifference, TheFinalNormIsComparedWhereTheSamePositionsHaveLogits) {
    const size_t head = written_points().first_of_head();
    ASSERT_GT(head, 0u);
    ASSERT_LT(head, written_points().size());
    const auto with_logits = [&](int64_t begin, int64_t end, std::vector<uint64_t> logits) {
        SequenceRecord sequence = with_ops(begin, end);
        sequence.logits = std::move(logits);
        for (size_t op = head; op < sequence.ops.size(); ++op) sequence.ops[op].low = 100 * sequence.logits.size();
        return sequence;
    };
    const SequenceRecord prompt = with_logits(0, 4, {5});
    const WrittenRecord token_by_token = computes({prompt, with_logits(4, 5, {6}), with_logits(5, 6, {7})});
    SequenceRecord chunk = with_logits(4, 6, {7});
    const Comparison same = compared(token_by_token, computes({prompt, chunk}));
    EXPECT_EQ(difference(same), "none");
    EXPECT_EQ(same.compared.operations, num_ops() + static_cast<int64_t>(head));
    EXPECT_EQ(same.compared.logits, 2);
    chunk.ops[head - 1].low += 1;
    EXPECT_EQ(compared(token_by_token, computes({prompt, chunk})).first->op_index, static_cast<int64_t>(head) - 1);
    chunk = with_logits(4, 6, {6, 7});
    EXPECT_EQ(difference(compared(token_by_token, computes({prompt, chunk}))), "none");
    chunk.ops[head].low += 1;
    EXPECT_EQ(compared(token_by_token, computes({prompt, chunk})).first->op_index, static_cast<int64_t>(head));
}

TEST(RecordDifference, AStretchOfTwoPositionsNamesNeither) {
    SequenceRecord two = with_ops(0, 2);
    two.ops[3].low += 1;
    EXPECT_EQ(compared(computes({with_ops(0, 2)}), computes({two})).first->position, -1);
    SequenceRecord one = with_ops(0, 1);
    one.ops[3].low += 1;
    EXPECT_EQ(compared(computes({with_ops(0, 1)}), computes({one})).first->position, 0);
}

// Layers of records without digests of them, or with tags that are not of so many layers.
TEST(RecordDifference, DigestsThatOneRecordLacksAreNotCompared) {
    const auto num_compared = [](const SequenceRecord& a, const SequenceRecord& b) {
        const Comparison comparison = compared(computes({a}), computes({b}));
        EXPECT_FALSE(comparison.first.has_value());
        return comparison.compared.operations;
    };
    const SequenceRecord none{.begin = 0, .end = 4};
    EXPECT_EQ(num_compared(none, none), 0);
    EXPECT_EQ(num_compared(with_layers(0, 4), none), 0);
    EXPECT_EQ(num_compared(none, with_layers(0, 4)), 0);
    EXPECT_EQ(num_compared(with_layers(0, 4), with_ops(0, 4)), 0);
    EXPECT_EQ(num_compared(with_layers(0, 4), with_layers(0, 4)), num_layers());
    SequenceRecord odd = with_layers(0, 4);
    odd.layer_tags += '\0';
    EXPECT_EQ(num_compared(odd, odd), 0);
    odd.layer_tags.assign(3 * written_points().layers().size(), '\0');
    EXPECT_EQ(num_compared(odd, odd), 0);
}

TEST(RecordDifference, SharesThatCutEachOtherAreComparedWhereTheyMeet) {
    const auto num_stretches = [](const std::vector<SequenceRecord>& a, const std::vector<SequenceRecord>& b) {
        for (const auto& [one, two] : {std::pair{a, b}, {b, a}}) {
            const Comparison comparison = compared(computes(one), computes(two));
            EXPECT_EQ(difference(comparison), "none");
            EXPECT_EQ(comparison.compared.operations % num_ops(), 0);
        }
        return compared(computes(a), computes(b)).compared.operations / num_ops();
    };
    // Computed twice from position 2 on, after a preemption: in one record, and in both.
    const std::vector<SequenceRecord> twice = {with_ops(0, 4), with_ops(2, 4), with_ops(4, 6)};
    EXPECT_EQ(num_stretches(twice, {with_ops(0, 6)}), 1);
    EXPECT_EQ(num_stretches(twice, twice), 3);
    // Attached at position 2.
    EXPECT_EQ(num_stretches({with_ops(0, 4), with_ops(4, 6)}, {with_ops(2, 4), with_ops(4, 6)}), 1);
    // A share of no positions has no sums.
    EXPECT_EQ(num_stretches({with_ops(0, 4), {.begin = 4, .end = 4}, with_ops(4, 6)}, {with_ops(0, 4), with_ops(4, 6)}),
              2);
    // The rest is in one of them alone.
    EXPECT_EQ(num_stretches({with_ops(0, 4)}, {with_ops(0, 2), with_ops(2, 6)}), 0);
}

TEST(RecordDifference, EveryRequestIsCounted) {
    WrittenRecord a;
    WrittenRecord b;
    int64_t id = 0;
    const auto both = [&](const std::string& conversation, WrittenTurn mine, WrittenTurn other) {
        mine.id = other.id = id++;
        mine.conversation = other.conversation = conversation;
        a.turn(mine);
        b.turn(other);
    };
    const WrittenTurn unanswered = {.tokens = {}, .states = {}, .end = End::kLeft};
    WrittenTurn never_started = unanswered;
    never_started.num_prompt_tokens = 0;
    both("equal", {}, {});
    both("equal too", {}, {});
    both("left", unanswered, unanswered);
    both("left too", unanswered, unanswered);
    both("not started", never_started, {});
    both("not started there", unanswered, never_started);
    both("another prompt", {}, {.prompt = 2});
    both("ordinary", {.deterministic = false, .tokens = {1}}, {.deterministic = false, .tokens = {2}});
    both("not started again", {}, never_started);
    a.turn({.id = id++, .conversation = "missing"});
    WrittenTurn missing = unanswered;
    missing.id = id;
    missing.conversation = "missing, unanswered";
    a.turn(missing).ends();
    b.ends();
    const auto requests = [](const Comparison& c) {
        return fmt::format("{} compared, {} different, {} other prompts, {} missing, {} unanswered, {} ordinary",
                           c.num_requests, c.num_different, c.num_other_prompts, c.num_missing, c.num_unanswered,
                           c.num_ordinary);
    };
    EXPECT_EQ(requests(compared(a, b, kOpen)),
              "2 compared, 0 different, 1 other prompts, 2 missing, 5 unanswered, 1 ordinary");
    EXPECT_EQ(difference(compared(a, b, kOpen)), "none");
    CompareOptions all = kOpen;
    all.ordinary = true;
    EXPECT_EQ(requests(compared(a, b, all)),
              "3 compared, 1 different, 1 other prompts, 2 missing, 5 unanswered, 0 ordinary");
    CompareOptions prompts = kOpen;
    prompts.same_prompts = true;
    EXPECT_EQ(difference(compared(a, b, prompts)),
              "kind 5, steps 10/-1, requests 6/-1, [-1, -1) at -1, layer -2, prompt, op -1, nothing/nothing");
    CompareOptions complete = kOpen;
    complete.is_complete = true;
    EXPECT_EQ(difference(compared(a, b, complete)),
              "kind 6, steps 14/-1, requests 8/-1, [-1, -1) at -1, layer -2, request, op -1, nothing/nothing");
}

TEST(RecordDifference, AnotherPromptComesBeforeWhatIsComputedInItsStep) {
    const auto written = [](uint64_t added, uint64_t prompt) {
        WrittenRecord record(DigestLevel::kOps);
        SequenceRecord oldest = with_ops(0, 4, 0);
        oldest.ops[0].low += added;
        record.submits(0, "c").submits(1, "d").submits(2, "e");
        record.starts(0, 4).starts(1, 4, prompt).starts(2, 4, prompt);
        record.computes(oldest).computes(with_ops(0, 4, 1)).steps().commits(0).commits(1).commits(2).ends();
        return record;
    };
    const WrittenRecord record = written(0, 1);
    EXPECT_EQ(compared(record, written(1, 2)).first->op, "prompt");
    EXPECT_EQ(compared(record, written(1, 2)).first->request, RequestId{1}) << "of two in a step, by name";
    // A difference in what was computed from equal tokens may be asked for.
    EXPECT_EQ(compared(record, written(1, 2), {.follow_tokens = true}).first->op_index, 0);
    EXPECT_EQ(compared(record, written(0, 2), {.follow_tokens = true}).first->op, "prompt");
    WrittenRecord without(DigestLevel::kOps);
    SequenceRecord oldest = with_ops(0, 4, 0);
    oldest.ops[0].low += 1;
    without.submits(0, "c").starts(0, 4).computes(oldest).steps().commits(0).ends();
    WrittenRecord answered = written(0, 1);
    EXPECT_EQ(compared(answered, without).first->op, "request");
    EXPECT_EQ(compared(answered, without, {.follow_tokens = true}).first->op_index, 0);
}

// Nothing was reported, and a client left: only the sums tell that what both computed is the same.
TEST(RecordDifference, WhatAnUnansweredRequestComputedIsCompared) {
    const auto written = [](uint64_t added) {
        WrittenRecord record(DigestLevel::kOps);
        SequenceRecord sequence = with_ops(0, 4);
        sequence.ops[0].low += added;
        record.submits(0, "c").starts(0, 4).computes(sequence).steps().discards(0, FinishReason::kAborted).ends();
        return record;
    };
    EXPECT_EQ(counts(compared(written(0), written(1))),
              fmt::format("0 tokens, 0 logits, {} operations, 0 states; 0 requests, 1 different", num_ops()));
}

TEST(RecordDifference, TextNamesTheKnownFields) {
    RecordDifference found;
    found.kind = DifferenceKind::kOperation;
    found.step = 0;
    found.request = RequestId{3};
    found.begin = 4;
    found.end = 9;
    found.op = "scan mixed";
    EXPECT_EQ(to_string(found), "step 0, request 3, position 4..8, scan mixed");
    found.begin = 0;
    EXPECT_EQ(to_string(found), "step 0, request 3, position 0..8, scan mixed");
    found.position = 0;
    found.layer = -1;
    found.element = 0;
    found.recorded = 1.5;
    found.computed = -2;
    found.ulps = 0;
    found.inputs_equal = true;
    EXPECT_EQ(to_string(found),
              "step 0, request 3, position 0, layer -1, scan mixed, element 0: recorded 1.5, "
              "computed -2, 0 ulps apart, from equal inputs");
    found.step = -1;
    found.layer = 0;
    found.computed.reset();
    found.ulps.reset();
    found.inputs_equal = false;
    EXPECT_EQ(to_string(found),
              "step ?, request 3, position 0, layer 0, scan mixed, element 0: recorded 1.5, "
              "computed nothing, from inputs that differ");
    found.recorded.reset();
    found.computed = 7;
    EXPECT_EQ(to_string(found),
              "step ?, request 3, position 0, layer 0, scan mixed, element 0: recorded nothing, "
              "computed 7, from inputs that differ");
}

// A whole request has no position.
TEST(RecordDifference, TextOfAWholeRequestNamesNoPosition) {
    WrittenRecord a;
    a.turn({.id = 2}).ends();
    WrittenRecord b;
    b.turn({.id = 2, .prompt = 2}).ends();
    EXPECT_EQ(to_string(*compared(a, b).first), "step 0, request 2, prompt");
}

TEST(RecordDifference, DescriptionsAreComparedLineByLine) {
    RunDescription one;
    one.model = "small";
    one.numerics = "exact/1";
    one.ordinary_numerics = "tensor.sm90/1";
    RunDescription other = one;
    other.model = "a copy of it";
    EXPECT_TRUE(what_differs(one, other).empty()) << "the same weights under another name";
    other.model_digest = {1, 2};
    other.numerics = "exact/2";
    other.ordinary_numerics = "exact/1";
    EXPECT_EQ(what_differs(one, other),
              (std::vector<std::string>{
                  "model: recorded small, here a copy of it",
                  fmt::format("model digest: recorded {}, here {}", Digest{}.hex(), other.model_digest.hex()),
                  "numerics: recorded exact/1, here exact/2",
                  "numerics of ordinary requests: recorded tensor.sm90/1, here exact/1"}));
}

}  // namespace
}  // namespace verbatim::tests
