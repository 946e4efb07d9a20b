#include "tests/system/system_scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "engine/base/prng.h"
#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

constexpr std::array<std::string_view, 3> kPrefixes = {"", "numeric ", "http "};  // of kinds
constexpr auto kNumActs = static_cast<size_t>(SystemAct::kCount);
constexpr auto kNumActsOfHosts = static_cast<size_t>(SystemAct::kNonsense);
constexpr std::array<const char*, kNumActs> kNames = {
    "turn",   "retry",       "lie",       "anonymous",   "leave", "fork", "rewind",   "remove", "look",        "run",
    "settle", "fail-ledger", "fail-step", "fail-folder", "stop",  "kill", "nonsense", "half",   "stop-reading"};
// The greatest weight that a seed may give each.
constexpr std::array<uint64_t, kNumActs> kGreatestWeight = {20, 8, 3, 8, 5, 3, 3, 4, 6, 20, 6, 2, 2, 2, 2, 2, 3, 3, 4};

}  // namespace

const char* name(SystemAct act) { return kNames.at(static_cast<size_t>(act)); }

SystemScene SystemScene::draw(uint64_t seed, int num_events, SystemKind kind) {
    Prng prng(seed ^ 0x7363656e65u);
    std::array<uint64_t, kNumActs> weights{};
    uint64_t total = 0;
    for (size_t act = 0; act < (kind == SystemKind::kHttp ? kNumActs : kNumActsOfHosts); ++act) {
        weights[act] = prng.below(kGreatestWeight[act] + 1);
        if (act == static_cast<size_t>(SystemAct::kTurn) || act == static_cast<size_t>(SystemAct::kRun))
            weights[act] += 4;
        total += weights[act];
    }
    SystemScene scene{.seed = seed, .kind = kind, .events = {}};
    for (int i = 0; i < num_events; ++i) {
        uint64_t drawn = prng.below(total);
        size_t act = 0;
        while (drawn >= weights[act]) drawn -= weights[act++];
        scene.events.push_back({static_cast<SystemAct>(act), prng.below(uint64_t{1} << 16)});
    }
    return scene;
}

std::string SystemScene::text() const {
    std::string text = fmt::format("{}{}:", kPrefixes.at(static_cast<size_t>(kind)), seed);
    for (const SystemEvent& event : events) text += fmt::format(" {} {:x}", name(event.act), event.chance);
    return text;
}

SystemScene SystemScene::parse(const std::string& text) {
    SystemScene scene;
    size_t prefix = kPrefixes.size() - 1;
    while (!text.starts_with(kPrefixes[prefix])) --prefix;
    scene.kind = static_cast<SystemKind>(prefix);
    std::istringstream words(text.substr(kPrefixes[prefix].size()));
    char colon = 0;
    words >> scene.seed >> colon;
    MUST(words && colon == ':', "a scene begins with its seed and a colon: {}", text);
    for (std::string word, chance; words >> word;) {
        const auto found = std::ranges::find(kNames, word);
        MUST(found != kNames.end() && words >> chance, "'{}' is no event", word);
        scene.events.push_back({static_cast<SystemAct>(found - kNames.begin()), std::stoull(chance, nullptr, 16)});
    }
    return scene;
}

// Parts are left out, halves first, then smaller ones.
SystemScene shrunk(SystemScene scene, const std::function<bool(const SystemScene&)>& fails, int tries) {
    for (size_t part = std::max<size_t>(scene.events.size() / 2, 1);; part = std::max<size_t>(part / 2, 1)) {
        bool changed = false;
        for (size_t begin = 0; begin < scene.events.size() && tries > 0;) {
            SystemScene smaller = scene;
            const auto first = smaller.events.begin() + static_cast<std::ptrdiff_t>(begin);
            const size_t count = std::min(part, scene.events.size() - begin);
            smaller.events.erase(first, first + static_cast<std::ptrdiff_t>(count));
            --tries;
            if (fails(smaller)) {
                scene = std::move(smaller);
                changed = true;
            } else {
                begin += part;
            }
        }
        if (tries == 0 || (part == 1 && !changed)) return scene;
    }
}

}  // namespace verbatim::tests
