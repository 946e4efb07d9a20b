// server/http/endpoints.h: owns what each path answers. One thread has it, the sockets'; JSON is read on another one,
// and text is made into tokens on a third one. Used where Asio's and Beast's names are at home.
//
//   P1  every check that can fail runs before a stream's status 200 is sent
//   P2  a client that goes away has its turns aborted, whether they are queued, in prefill or decoding
//   P3  nothing that grows with what a client sent or asked for is done on the sockets' thread
//   P4  what is wrong without its text being looked at is said before others' templates are done
//   P5  what throws, on whichever thread (no memory is left), is a 500 of its request, or the last event of its stream;
//       its turn is aborted, and the server goes on
//   P6  what waits for a thread counts as what waits for the engine does: together the host's capacity
#pragma once

#include <utility>

#include <boost/asio.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/connection.h"
#include "server/http/generation.h"
#include "server/http/http_config.h"
#include "server/http/metrics.h"
#include "server/http/outcome.h"
#include "server/http/service.h"
#include "server/http/tenants.h"
#include "server/http/updates.h"

namespace verbatim::server {

inline constexpr const char* kJsonType = "application/json";

struct Route;

// One request, and who it is from.
struct Call {
    ConnectionPtr connection;
    const Request& request;  // the connection's
    std::string path;        // without the query
    std::string id;          // ours: of the answer
    std::string said_id;     // what the client calls its request, or ours
    std::optional<std::string> tenant;
    const Route* of_path = nullptr;  // null: there is no such path
    const Route* route = nullptr;    // null: it does not take the method
    std::string allowed;             // the methods that the path takes
    std::string method;              // HEAD is asked as GET is
};

class Endpoints {
public:
    // `page`: what / shows.
    Endpoints(std::shared_ptr<asio::io_context> loop, const HttpConfig& config, Tenants tenants, std::string page);

    void serve(Service service) { service_ = std::move(service); }
    void drain() { draining_ = true; }
    [[nodiscard]] bool draining() const { return draining_; }
    [[nodiscard]] HttpMetrics& metrics() { return metrics_; }
    // Of the connection's request, whose body need not be there.
    [[nodiscard]] Call hear(ConnectionPtr connection);
    // What is wrong with it whatever its body is.
    [[nodiscard]] std::optional<Response> refusal_without_body(const Call& call);
    // Writes the answer. False when the connection is of no more use.
    asio::awaitable<bool> answer(const Call& call);
    void join_threads();
    void forget_loop();  // nothing is asked of it any more

private:
    friend struct Route;
    using Handler = asio::awaitable<bool> (Endpoints::*)(const Call& call);
    static const std::vector<Route>& routes();
    [[nodiscard]] std::optional<ApiError> refusal(const Call& call) const;
    [[nodiscard]] static ApiError unknown_url(const std::string& path);

    asio::awaitable<bool> options(const Call& call);
    asio::awaitable<bool> page(const Call& call);
    asio::awaitable<bool> health(const Call& call);
    asio::awaitable<bool> ready(const Call& call);
    asio::awaitable<bool> show_metrics(const Call& call);
    asio::awaitable<bool> models(const Call& call);
    asio::awaitable<bool> model(const Call& call);
    asio::awaitable<bool> tokenize(const Call& call);
    asio::awaitable<bool> detokenize(const Call& call);
    asio::awaitable<bool> conversation(const Call& call);
    asio::awaitable<bool> chat(const Call& call) { return generate(call, ApiKind::kChat); }
    asio::awaitable<bool> complete(const Call& call) { return generate(call, ApiKind::kCompletion); }

    // An answer under way.
    struct Turn {
        Generation generation;
        std::shared_ptr<Updates> updates;
        Bell::Timer timer;  // of the updates
        std::vector<Ticket> tickets;
        double began = 0;
        std::vector<double> first_tokens;  // of each choice; 0: none yet
    };
    asio::awaitable<bool> generate(const Call& call, ApiKind kind);
    // A request as it was read, and as it is ready for the engine.
    struct Asked {
        GenerateRequest request;  // in the end without its messages
        ConversationHint conversation;
        CacheSalt salt;
        History history;
        std::vector<HostRequest> jobs;
        int64_t num_prompt_tokens = 0;
    };
    [[nodiscard]] ApiResult<Asked> read(const Call& call, ApiKind kind) const;
    void look(const std::shared_ptr<Asked>& asked, const std::function<void(ApiResult<Asked>)>& tell);
    asio::awaitable<ApiResult<Asked>> read_with_history(const Call& call, ApiKind kind);
    [[nodiscard]] std::optional<ApiError> make_jobs(Asked& asked);
    asio::awaitable<ApiResult<Asked>> prepare(const Call& call, ApiKind kind);
    asio::awaitable<std::optional<ApiError>> begin(const Call& call, ApiKind kind, std::optional<Turn>& turn);
    void take(Turn& turn, std::vector<ChoiceUpdate>& some);
    // Until it is said of the generation. False: the client has gone.
    asio::awaitable<bool> take_until(Turn& turn, bool (Generation::*is_there)() const);
    asio::awaitable<bool> answer_turn(const Call& call, Turn& turn);
    asio::awaitable<bool> answer_failed(const Call& call, const Turn& turn, const ApiError& error);
    asio::awaitable<bool> answer_whole(const Call& call, Turn& turn);
    asio::awaitable<bool> answer_stream(const Call& call, Turn& turn);
    asio::awaitable<bool> write_stream(const Call& call, Turn& turn);
    void name_answer(const Call& call, const Turn& turn, http::fields& fields) const;
    void count_end(const Turn& turn, size_t choice);

    [[nodiscard]] Response refused(const Call& call, const ApiError& error) const;
    asio::awaitable<bool> refuse(const Call& call, const ApiError& error);
    asio::awaitable<bool> say(const Call& call, const Json& body);  // 200; of what is short
    asio::awaitable<bool> say_text(const Call& call, const char* type, std::string body);
    void sign(const Call& call, Response& response);
    asio::awaitable<bool> write(const Call& call, Response response);
    // Requests that are being read or put into tokens count for the engine's, one each. Error: there is no room.
    [[nodiscard]] std::optional<ApiError> fullness() const;
    [[nodiscard]] static ApiError overloaded();
    // What `work` makes on another thread; others are served meanwhile. T can be an ApiError: 500 where work throws.
    template <typename T>
    asio::awaitable<T> on_thread(asio::thread_pool& thread, std::function<T()> work);

    std::shared_ptr<asio::io_context> loop_;
    const HttpConfig& config_;
    Tenants tenants_;
    std::string page_;
    std::optional<Service> service_;  // none: the model is being loaded
    HttpMetrics metrics_;
    std::shared_ptr<UpdateQueue> updates_;
    asio::thread_pool json_thread_{1};
    asio::thread_pool text_thread_{1};
    text::WordCache words_;  // of the text's thread
    std::string run_;        // of the ids of requests
    int64_t next_request_ = 0;
    size_t num_prepared_ = 0;  // now, on other threads
    bool draining_ = false;
};

struct Route {
    http::verb verb;
    std::string_view path;  // the beginning of one, when it ends in /
    Endpoints::Handler handler;
    bool needs_key = true;
    bool needs_model = true;
};

// One of those that are being prepared.
class Preparing {
public:
    explicit Preparing(size_t& count) : count_(count) { ++count_; }
    Preparing(const Preparing&) = delete;
    Preparing& operator=(const Preparing&) = delete;
    ~Preparing() { --count_; }

private:
    size_t& count_;
};

template <typename T>
asio::awaitable<T> Endpoints::on_thread(asio::thread_pool& thread, std::function<T()> work) {
    const auto delivery = std::make_shared<Delivery<T>>();
    asio::post(thread,
               [this, delivery, work = std::move(work)] { Delivery<T>::hand_in(*loop_, delivery, outcome_of(work)); });
    co_return co_await delivery->take();
}

}  // namespace verbatim::server
