// When a call counts as a hang.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "kernels/sandbox/group_time.h"

namespace verbatim::sandbox {
namespace {

// A machine with other load gives the call a tenth of a processor: it counts for what it got.
TEST(HangWatch, AStarvedCallIsNoHang) {
    HangWatch watch(2, 1);
    double used = 5;  // by the calls before
    for (int step = 0; step < 100; ++step) {
        EXPECT_FALSE(watch.hangs()) << step;
        watch.look({used, true}, 0.1);
        used += 0.01;
    }
    EXPECT_FALSE(watch.hangs());
    for (int step = 0; step < 102; ++step) watch.look({used += 0.01, true}, 0.1);
    EXPECT_TRUE(watch.has_used_all());
    EXPECT_FALSE(watch.has_slept());
}

TEST(HangWatch, WhatSleepsHangsByTheClock) {
    HangWatch watch(2, 1);
    for (int step = 0; step < 19; ++step) watch.look({1, false}, 0.1);
    EXPECT_FALSE(watch.hangs());
    watch.look({1.5, false}, 0.1);  // it has run between
    EXPECT_FALSE(watch.hangs());
    for (int step = 0; step < 2; ++step) watch.look({1.5, false}, 0.1);
    EXPECT_TRUE(watch.has_slept());
    EXPECT_FALSE(watch.has_used_all());
}

TEST(HangWatch, ThreadsHaveASharePerProcessor) {
    HangWatch one(1, 1), four(1, 4);
    for (const double used : {0.0, 1.0, 2.0, 3.0}) {
        one.look({used, true}, 0.1);
        four.look({used, true}, 0.1);
    }
    EXPECT_TRUE(one.hangs());
    EXPECT_FALSE(four.hangs());
    four.look({4, true}, 0.1);
    EXPECT_TRUE(four.hangs());
}

TEST(HangWatch, AGroupIsAllItsProcesses) {
    const pid_t group = fork();
    if (group == 0) {
        setpgid(0, 0);
        if (fork() == 0) {
            for (;;) pause();
        }
        for (;;) {
        }
    }
    setpgid(group, group);
    GroupUse use;
    while (use.seconds < 0.05) use = use_of_group(group);
    EXPECT_TRUE(use.is_running);
    kill(group, SIGSTOP);
    while (use_of_group(group).is_running) {
    }
    EXPECT_GE(use_of_group(group).seconds, use.seconds);
    kill(-group, SIGKILL);
    waitpid(group, nullptr, 0);
}

}  // namespace
}  // namespace verbatim::sandbox
