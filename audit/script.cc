#include "audit/script.h"

#include <array>
#include <string_view>

namespace verbatim::audit {
namespace {

using nlohmann::ordered_json;

constexpr std::array<const char*, 7> kNeedNames = {"reused",  "fresh",   "together", "streamed",
                                                   "aborted", "drafted", "restarted"};

ordered_json place_json(const Place& place) { return {place.wave, place.ask, place.choice}; }

Place place_of(const ordered_json& json) {
    return {json.at(0).get<size_t>(), json.at(1).get<size_t>(), json.at(2).get<size_t>()};
}

bool is_place(const Case& script, size_t wave, size_t ask) {
    return wave < script.waves.size() && ask < script.waves[wave].asks.size();
}

Status check(const Case& script) {
    for (const Pair& pair : script.pairs) {
        for (const Place& place : {pair.left, pair.right}) {
            if (!is_place(script, place.wave, place.ask))
                return error("pairs: there is no request {} in wave {}", place.ask, place.wave);
        }
    }
    for (const Need& need : script.needs) {
        if (!is_place(script, need.wave, need.ask))
            return error("needs: there is no request {} in wave {}", need.ask, need.wave);
    }
    for (const Wave& wave : script.waves) {
        for (const Ask& ask : wave.asks) {
            if (!ask.path.starts_with("/")) return error("waves: the path {:?} does not begin with /", ask.path);
            if (ask.server < 0 || ask.server > 1) return error("waves: server is {}, wanted 0 or 1", ask.server);
        }
    }
    return {};
}

}  // namespace

const char* name(NeedKind kind) { return kNeedNames[static_cast<size_t>(kind)]; }

ordered_json case_json(const Case& script) {
    ordered_json json = {{"relation", script.relation}, {"name", script.name}, {"sampled", script.is_sampled}};
    json["waves"] = ordered_json::array();
    for (const Wave& wave : script.waves) {
        ordered_json asks = ordered_json::array();
        for (const Ask& ask : wave.asks) {
            ordered_json one = {{"path", ask.path}, {"body", ask.body}};
            if (ask.abort_after_bytes != 0) one["abort_after_bytes"] = ask.abort_after_bytes;
            if (ask.server != 0) one["server"] = ask.server;
            asks.push_back(std::move(one));
        }
        ordered_json one = {{"requests", std::move(asks)}};
        if (wave.restarts) one["restarts"] = true;
        json["waves"].push_back(std::move(one));
    }
    json["pairs"] = ordered_json::array();
    for (const Pair& pair : script.pairs) {
        ordered_json one = {{"left", place_json(pair.left)}, {"right", place_json(pair.right)}};
        if (pair.continues) one["continues"] = true;
        if (pair.same_prompt) one["same_prompt"] = true;
        if (pair.chosen_first) one["chosen_first"] = true;
        if (pair.scores_only) one["scores_only"] = true;
        json["pairs"].push_back(std::move(one));
    }
    json["needs"] = ordered_json::array();
    for (const Need& need : script.needs)
        json["needs"].push_back({{"what", name(need.kind)}, {"wave", need.wave}, {"request", need.ask}});
    return json;
}

Result<Case> parse_case(const ordered_json& json) {
    Case script;
    try {
        script.relation = json.at("relation").get<std::string>();
        script.name = json.at("name").get<std::string>();
        script.is_sampled = json.value("sampled", false);
        for (const ordered_json& from : json.at("waves")) {
            Wave wave;
            wave.restarts = from.value("restarts", false);
            for (const ordered_json& one : from.at("requests")) {
                wave.asks.push_back({one.at("path").get<std::string>(), one.at("body"),
                                     one.value("abort_after_bytes", int64_t{0}), one.value("server", 0)});
            }
            script.waves.push_back(std::move(wave));
        }
        for (const ordered_json& from : json.at("pairs")) {
            script.pairs.push_back({place_of(from.at("left")), place_of(from.at("right")),
                                    from.value("continues", false), from.value("same_prompt", false),
                                    from.value("chosen_first", false), from.value("scores_only", false)});
        }
        for (const ordered_json& from : json.at("needs")) {
            const auto what = from.at("what").get<std::string>();
            size_t kind = 0;
            while (kind < kNeedNames.size() && what != kNeedNames[kind]) ++kind;
            if (kind == kNeedNames.size()) return error("needs: {:?} is unknown", what);
            script.needs.push_back({NeedKind(kind), from.at("wave").get<size_t>(), from.at("request").get<size_t>()});
        }
    } catch (const nlohmann::json::exception& problem) {
        return error("the case is not what an audit writes: {}", problem.what());
    }
    RETURN_IF_ERROR(check(script));
    return script;
}

}  // namespace verbatim::audit
