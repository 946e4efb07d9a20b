// The whole server in random worlds (system_world.h). A failing scene is shrunk and printed; kScenes has some that did.
//
// VERBATIM_SCENE="17: turn 3fa2 kill 9" runs one scene; RC_PARAMS="seed=n max_success=m" chooses 4 m worlds from n on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <set>
#include <string>
#include <string_view>

#include "tests/support/random_cases.h"
#include "tests/system/system_world.h"

namespace verbatim::tests {
namespace {

constexpr int kEvents = 60;

struct Marks {
    SystemMarks world{};
    HttpMarks http{};
};

// Empty, or what went wrong.
std::string run_scene(const SystemScene& scene, Marks& marks) {
    try {
        SystemWorld world(scene);
        world.run();
        for (size_t i = 0; i < marks.world.size(); ++i) marks.world[i] += world.marks()[i];
        for (size_t i = 0; i < marks.http.size(); ++i) marks.http[i] += world.http_marks()[i];
    } catch (const std::exception& violation) {
        return violation.what();
    }
    return {};
}

std::string run_and_shrink(const SystemScene& scene, Marks& marks) {
    const std::string problem = run_scene(scene, marks);
    if (problem.empty()) return {};
    const char* parameters = std::getenv("RC_PARAMS");  // as RapidCheck reads them
    if (parameters != nullptr && std::string_view(parameters).find("noshrink=1") != std::string_view::npos)
        return fmt::format("{}\n  again with: VERBATIM_SCENE=\"{}\"", problem, scene.text());
    Marks unused;
    const SystemScene least =
        shrunk(scene, [&](const SystemScene& smaller) { return !run_scene(smaller, unused).empty(); });
    return fmt::format("{}\n  shrunk: {}\n  again with: VERBATIM_SCENE=\"{}\"", problem, run_scene(least, unused),
                       least.text());
}

template <typename Mark, size_t N>
void show(const std::array<int64_t, N>& marks, bool must_be_there, const std::set<Mark>& not_there = {}) {
    for (size_t i = 0; i < N; ++i) {
        fmt::print("{} {}\n", name(static_cast<Mark>(i)), marks[i]);
        if (must_be_there && !not_there.contains(static_cast<Mark>(i)))
            EXPECT_GT(marks[i], 0) << name(static_cast<Mark>(i));
    }
}

// `usual_count` worlds, which reach every mark.
void run_worlds(uint64_t usual_count, SystemKind kind) {
    Marks marks;
    const RandomCases cases = RandomCases::from_environment(usual_count);
    for (uint64_t i = 0; i < cases.count; ++i)
        ASSERT_EQ(run_and_shrink(SystemScene::draw(cases.seed + i, kEvents, kind), marks), "");
    const bool are_enough = cases.count >= usual_count && cases.is_usual();  // to say that everything happens
    const bool is_http = kind == SystemKind::kHttp;
    show<SystemMark>(marks.world, are_enough, is_http ? std::set{SystemMark::kRewritten} : std::set<SystemMark>());
    if (is_http) show<HttpMark>(marks.http, are_enough);
}

TEST(SystemSwarm, EveryRandomWorldKeepsWhatItAnswered) {
    if (const char* text = std::getenv("VERBATIM_SCENE")) {
        Marks marks;
        ASSERT_EQ(run_scene(SystemScene::parse(text), marks), "");
        return;
    }
    run_worlds(400, SystemKind::kHost);
}

TEST(SystemSwarm, EveryNumericWorldKeepsItsBits) { run_worlds(100, SystemKind::kNumeric); }

TEST(SystemSwarm, EveryHttpWorldKeepsWhatItAnswered) { run_worlds(200, SystemKind::kHttp); }

// What a failing scene was shrunk to, mostly of a fault (tests/planted/faults/server).
constexpr std::array kScenes = {
    "20251128: turn 9289 kill 34aa",             // an answered turn that the store does not have
    "20251122: turn c4e0 run 2d08 retry 9eed",   // a turn that is sent again
    "20251123: turn 34e8",                       // a request that waits for its conversation
    "http 20251122: nonsense a5a3",              // a body that ends before its length
    "http 20251124: turn 86d stop-reading f0d",  // an answer that is not read at once
    // An answer whose repetition is heard before it.
    "25112: turn 56ea remove edbe anonymous ffd5 run c77 remove ab stop e8d2 run 7395 fail-step bef9 turn c1b2 "
    "run 126b retry cfc9",
};

TEST(SystemSwarm, ScenesThatFaultsLedToPass) {
    Marks marks;
    for (const char* text : kScenes) EXPECT_EQ(run_scene(SystemScene::parse(text), marks), "") << text;
}

TEST(SystemSwarm, AScenesTextIsTheScene) {
    const SystemScene scene = SystemScene::draw(17, kEvents);
    EXPECT_EQ(SystemScene::parse(scene.text()), scene);
    for (const SystemKind kind : {SystemKind::kNumeric, SystemKind::kHttp}) {
        const SystemScene other = SystemScene::draw(17, kEvents, kind);
        EXPECT_NE(other, scene);
        EXPECT_EQ(SystemScene::parse(other.text()), other);
    }
    EXPECT_ANY_THROW(static_cast<void>(SystemScene::parse("17: sing 3")));
    EXPECT_ANY_THROW(static_cast<void>(SystemScene::parse("turn 3")));
}

uint64_t trail_of(const SystemScene& scene) {
    SystemWorld world(scene);
    world.run();
    return world.trail();
}

TEST(SystemSwarm, AWorldIsAFunctionOfItsScene) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const SystemScene scene =
            SystemScene::draw(seed, kEvents, seed % 2 == 0 ? SystemKind::kHost : SystemKind::kHttp);
        const uint64_t trail = trail_of(scene);
        EXPECT_EQ(trail_of(scene), trail) << seed;
    }
}

}  // namespace
}  // namespace verbatim::tests
