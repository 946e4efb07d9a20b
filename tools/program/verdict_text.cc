#include "tools/program/verdict_text.h"

#include <fmt/format.h>

namespace verbatim::tools {

using nlohmann::ordered_json;
using records::ComparedShare;
using records::Promise;
using records::Verdict;

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

}  // namespace verbatim::tools
