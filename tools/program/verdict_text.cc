#include "tools/program/verdict_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace verbatim::tools {

using nlohmann::ordered_json;
using records::ComparedShare;
using records::Promise;
using records::Verdict;

namespace {

template <typename T>
ordered_json known(const std::optional<T>& value) {
    if constexpr (std::is_same_v<T, double>) {
        if (value && !std::isfinite(*value)) return fmt::format("{}", *value);
    }
    return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json known(int64_t value) { return value < 0 ? ordered_json(nullptr) : ordered_json(value); }

}  // namespace

std::string verdict_words(Verdict verdict, const ComparedShare& share) {
    if (verdict == Verdict::kDifferent) return "different";
    if (share.is_empty()) return "nothing compared";
    return verdict == Verdict::kSame ? "identical" : "not all compared";
}

std::string share_lines(const ComparedShare& share, const std::string& prefix) {
    std::string text = fmt::format("{}compared: {}\n", prefix, to_string(share));
    for (const ComparedShare::LeftOut& left_out : share.left_out()) {
        const char* what = left_out.promise == Promise::kBits ? "not compared" : "not promised, not compared";
        text += fmt::format("{}{}: {}\n", prefix, what, to_string(left_out));
    }
    return text;
}

std::string left_out_line(const ComparedShare& share) {
    std::string text;
    for (const ComparedShare::LeftOut& left_out : share.left_out()) {
        text += (text.empty() ? "" : "; ") + to_string(left_out);
    }
    return text;
}

std::string why_not_same(const records::Comparison& comparison) {
    if (comparison.first) return to_string(*comparison.first);
    if (comparison.verdict() == Verdict::kSame) return "";
    const std::string left_out = left_out_line(comparison.share);
    if (comparison.share.is_empty()) {
        return fmt::format("nothing was compared: {}",
                           left_out.empty() ? "the record holds no tokens, logits or states" : left_out);
    }
    return fmt::format("not all compared: {}; {}", to_string(comparison.share), left_out);
}

JunitCase junit_case(const records::Comparison& comparison) {
    JunitCase one;
    if (comparison.verdict() == Verdict::kDifferent) one.outcome = JunitOutcome::kFailure;
    if (comparison.verdict() == Verdict::kNotAllCompared) one.outcome = JunitOutcome::kError;
    one.message = why_not_same(comparison);
    one.output = share_lines(comparison.share);
    return one;
}

ordered_json compared_share_json(const ComparedShare& share) {
    ordered_json json = ordered_json::object();
    const records::UnitCounts all = share.total();
    for (const auto& [unit, total] : all.all()) {
        const int64_t compared = share.compared().of(unit);
        const ordered_json fraction =
            total > 0 ? ordered_json(static_cast<double>(compared) / static_cast<double>(total)) : nullptr;
        json[unit] = {{"compared", compared}, {"total", total}, {"fraction", fraction}};
    }
    json["left_out"] = ordered_json::array();
    for (const ComparedShare::LeftOut& left_out : share.left_out()) {
        ordered_json one = {{"reason", left_out.reason}, {"promised", left_out.promise == Promise::kBits}};
        if (!left_out.is_counted) one["count_known"] = false;
        for (const auto& [unit, count] : left_out.counts.all()) one[unit] = count;
        json["left_out"].push_back(std::move(one));
    }
    return json;
}

ordered_json compared_json(const records::ComparedCounts& compared) {
    return {{"tokens", compared.tokens},
            {"logits", compared.logits},
            {"operations", compared.operations},
            {"states", compared.states}};
}

ordered_json record_difference_json(const records::RecordDifference& d) {
    ordered_json json;
    json["step"] = known(d.step);
    json["request"] = known(index(d.request));
    json["position"] = known(d.position);
    json["layer"] = d.layer < -1 ? ordered_json(nullptr) : ordered_json(d.layer);
    json["op"] = d.op;
    json["element"] = known(d.element);
    json["recorded"] = known(d.recorded);
    json["computed"] = known(d.computed);
    json["ulps"] = known(d.ulps);
    json["inputs_equal"] = known(d.inputs_equal);
    if (!d.remark.empty()) json["remark"] = d.remark;
    return json;
}

}  // namespace verbatim::tools
