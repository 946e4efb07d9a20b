// server/http/starts.h: owns when requests start: a few at a time, so that a burst does not delay other connections.
// Only for sources that use Asio.
//
//   S1  at most kMaxStarted requests start per poll of the sockets; the rest wait, in order
//   S2  below that limit no request waits
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

    // Borrows the loop; all calls are on its thread, while it runs.
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
    size_t num_started_ = 0;   // since the last poll
    bool is_looking_ = false;  // start_some() is posted
};

}  // namespace verbatim::server
