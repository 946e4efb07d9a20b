// tests/support/run_scribe.h: writes a run of an engine down as a RecordedRun, which a simulation then takes.
#pragma once

#include <cstdint>
#include <map>

#include "engine/base/prng.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/recorder.h"
#include "simulator/simulation.h"
#include "simulator/trace_driver.h"

namespace verbatim::tests {

// As if times were measured: every step takes some milliseconds, which are written down. It is asked before and after.
class ScribeClock final : public Clock {
public:
    explicit ScribeClock(RecordedRun& record) : record_(record) {}
    int64_t now_ns() override {
        if (++num_asked_ % 2 == 1) return now_ns_;
        record_.elapsed_ns.push_back(static_cast<int64_t>(prng_.below(40)) * 1'000'000 + 1);
        return now_ns_ += record_.elapsed_ns.back();
    }

private:
    RecordedRun& record_;
    Prng prng_{3};
    int64_t num_asked_ = 0;
    int64_t now_ns_ = 0;
};

// Answers by request, which are accepted in the order of rows that are reported.
class AnswerRecorder : public Recorder, public DriverHooks {
public:
    explicit AnswerRecorder(RecordedRun& record) : record_(record) {}
    void on_plan(const StepPlan& plan) override { digest.on_plan(plan); }
    void on_event(const verbatim::Event& event) override { digest.on_event(event); }
    void on_token(RequestId request, TokenId token) override {
        digest.on_token(request, token);
        record_.answers.at(rows_.at(request)).push_back(token);
    }
    void prepare(traces::RowIndex, ChatRequest&) override {}
    void accepted(traces::RowIndex row, RequestId request) override {
        rows_[request] = static_cast<size_t>(index(row));
        record_.answers.at(static_cast<size_t>(index(row))).clear();
    }
    void stepped(int64_t) override {}
    DigestRecorder digest;

private:
    RecordedRun& record_;
    std::map<RequestId, size_t> rows_;
};

}  // namespace verbatim::tests
