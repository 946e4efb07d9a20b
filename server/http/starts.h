// server/http/starts.h: owns when requests begin: some at a time, so that many that come at once hold nobody up. Used
// where Asio's names are at home.
//
//   S1  between two looks at the sockets at most kMaxStarted begin; the others wait, in their order
//   S2  nobody waits while fewer have begun
#pragma once

#include <utility>

#include <boost/asio.hpp>

#include <cstddef>
#include <deque>
#include <memory>

#include "server/http/updates.h"

namespace verbatim::server {

class Starts {
public:
    static constexpr size_t kMaxStarted = 8;

    // Borrows the loop; all calls on its thread, while it runs.
    explicit Starts(boost::asio::io_context& loop) : loop_(loop) {}
    Starts(const Starts&) = delete;
    Starts& operator=(const Starts&) = delete;

    boost::asio::awaitable<void> wait_for_turn();

private:
    struct Waiting {
        Bell bell;
        bool may_begin = false;
    };
    void look_again();
    void start_some();

    boost::asio::io_context& loop_;
    std::deque<std::shared_ptr<Waiting>> waiting_;
    size_t num_started_ = 0;   // since the last look
    bool is_looking_ = false;  // start_some() is on its way
};

}  // namespace verbatim::server
